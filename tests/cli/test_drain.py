"""`faultline drain` asks the named workers to stop, and can wait for them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from faultline.postgres.sessions import run
from faultline.statements import workers
from tests.waiting import wait_until

from .conftest import Connection, Faultline, claim, enqueue, register

Connect = Callable[[], Connection]


def asked(conn: Connection) -> list[str]:
    query = "SELECT id FROM faultline.workers WHERE drain_requested_at IS NOT NULL ORDER BY id"
    return [worker for (worker,) in conn.execute(query)]


def wait_until_asked(conn: Connection, how_many: int) -> None:
    wait_until(lambda: len(asked(conn)) >= how_many, "the request to drain")


def test_a_named_worker_is_asked_and_its_running_jobs_are_printed(
    faultline: Faultline, conn: Connection, worker_session: Connection
) -> None:
    register(worker_session, "first")
    register(worker_session, "second")
    enqueue(conn)
    claim(conn, "first")
    done = faultline("drain", "first")
    assert done.out == "asked first to drain; it runs 1 job\n"
    assert done.code == 0
    assert asked(conn) == ["first"]


def test_all_asks_every_worker_and_accepts_that_there_is_none(
    faultline: Faultline, conn: Connection, worker_session: Connection
) -> None:
    assert faultline("drain", "--all").out == "no worker is registered\n"
    register(worker_session, "first")
    register(worker_session, "second")
    assert faultline("drain", "--all").code == 0
    assert asked(conn) == ["first", "second"]


def test_a_pattern_asks_all_workers_of_a_host(
    faultline: Faultline, conn: Connection, worker_session: Connection
) -> None:
    for worker in ("web-1-10-a", "web-1-11-b", "web-2-10-c"):
        register(worker_session, worker)
    faultline("drain", "web-1-*", "web-1-10-a")
    assert asked(conn) == ["web-1-10-a", "web-1-11-b"]


@pytest.mark.parametrize(
    ("words", "code", "message", "hint"),
    [
        ((), "usage", "no worker is given", "--all"),
        (("web-1-10-a", "--all"), "usage", "workers and --all exclude each other", "--all"),
        (("--all", "--timeout", "3"), "usage", "--timeout has no effect without --wait", ""),
        (
            *(("web-1-10-b",), "invalid_input", "there is no worker 'web-1-10-b'"),
            "did you mean web-1-10-a?",
        ),
        (
            *(("nothing-like-it-*",), "invalid_input", "there is no worker 'nothing-like-it-*'"),
            "there are web-1-10-a;",
        ),
    ],
)
def test_wrong_arguments_are_explained_and_no_worker_is_asked(
    faultline: Faultline,
    conn: Connection,
    worker_session: Connection,
    words: tuple[str, ...],
    code: str,
    message: str,
    hint: str,
) -> None:
    register(worker_session, "web-1-10-a")
    error = faultline("drain", *words).refused(code)
    assert error.message == message
    assert hint in (error.hint or "")
    assert faultline("drain", "web-1-10-a", "typo").code == 1
    assert asked(conn) == []


def test_an_unknown_worker_is_refused_when_none_is_registered(faultline: Faultline) -> None:
    error = faultline("drain", "first").refused("invalid_input")
    assert (error.hint or "").startswith("no worker is registered")


def test_a_lost_worker_is_reported_and_asked_in_case_it_comes_back(
    faultline: Faultline, conn: Connection, worker_session: Connection, connect: Connect
) -> None:
    register(worker_session, "here")
    with connect() as session:
        register(session, "gone")
    run(conn, workers.remove_dead_workers(["gone"]))
    done = faultline("drain", "gone", "here")
    assert done.code == 1
    assert "gone is lost, last heartbeat" in done.out
    assert "asked here to drain" in done.out
    assert asked(conn) == ["gone", "here"]


def test_waiting_ends_when_all_workers_have_stopped(
    faultline: Faultline, worker_session: Connection, connect: Connect
) -> None:
    register(worker_session, "first")
    register(worker_session, "second")

    def leave(other: Connection) -> None:
        wait_until_asked(other, 2)
        for worker in ("first", "second"):
            run(other, workers.deregister_worker(worker))

    with ThreadPoolExecutor(1) as threads:
        leaving = threads.submit(leave, connect())
        done = faultline("drain", "--all", "--wait")
        leaving.result()
    assert done.code == 0
    first, second, *farewells = done.out.splitlines()
    assert first.startswith("asked first")
    assert second.startswith("asked second")
    assert {line.split()[0] for line in farewells} == {"first", "second"}
    assert farewells[-1].endswith("has stopped (2 of 2)")


def test_workers_that_have_not_stopped_in_time_are_named(
    faultline: Faultline, conn: Connection, worker_session: Connection
) -> None:
    register(worker_session, "slow")
    register(worker_session, "deaf")
    run(conn, workers.drain_worker("slow"))
    enqueue(conn)
    claim(conn, "slow")
    done = faultline("drain", "--all", "--wait", "--timeout", "0.3")
    assert done.code == 1
    assert "after 0.30 s 2 workers had not stopped:" in done.out
    assert "slow: draining, 1 job running" in done.out
    assert "deaf: has not reacted yet, 0 jobs running" in done.out


def test_a_worker_lost_during_the_wait_makes_the_command_fail(
    faultline: Faultline, conn: Connection, connect: Connect
) -> None:
    session = connect()
    register(session, "first")

    def die() -> None:
        wait_until_asked(conn, 1)
        session.close()

    with ThreadPoolExecutor(1) as threads:
        dying = threads.submit(die)
        done = faultline("drain", "first", "--wait", "--timeout", "60")
        dying.result()
    assert done.code == 1
    assert "first was lost before it had drained" in done.out
