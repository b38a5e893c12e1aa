"""Workers wait for a database that stops, or that is not there when they start."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal
from uuid import UUID

import psycopg
import pytest

from faultline import embedded
from faultline.postgres.migrate import migrate
from tests.processes import apps
from tests.processes.fleet import Fleet, Process
from tests.processes.observed_database import ObservedDatabase
from tests.slow import slow_unless

JOBS = 200


@pytest.fixture
def url(own_server: embedded.Server) -> str:
    """The URL of a started server with the schema, for this test alone."""
    own_server.start()
    migrate(own_server.url)
    with psycopg.connect(own_server.url, autocommit=True) as conn:
        ObservedDatabase.build(conn)
    return own_server.url


@pytest.fixture
def own_fleet(url: str) -> Iterator[Fleet]:
    fleet = Fleet(url)
    yield fleet
    fleet.end()


@contextlib.contextmanager
def observing(url: str) -> Iterator[ObservedDatabase]:
    with psycopg.connect(url, autocommit=True) as conn:
        yield ObservedDatabase(conn)


def assert_noticed_at_once(other: Process, database: ObservedDatabase, job_id: UUID) -> None:
    """Noticed by its lost sessions: its lease would last ten minutes."""
    requeued = other.wait_for_event("lease_reaped", job_id=job_id)
    assert requeued["cause"] == "worker_lost"
    assert database.wait_for_state(job_id)[:2] == ("succeeded", 2)
    assert database.payments(job_id) == 1


@pytest.mark.parametrize("mode", slow_unless(["fast", "immediate"], "immediate"))
def test_a_restart_under_load_loses_no_job_and_repeats_no_effect(
    own_server: embedded.Server, own_fleet: Fleet, url: str, mode: Literal["fast", "immediate"]
) -> None:
    options = ("--concurrency", "4", "--lease-seconds", "5")
    workers = [own_fleet.started(*options, name=f"worker {n}") for n in range(2)]
    with observing(url) as database:
        # These stay in the middle of their transactions, however fast the other jobs are done.
        unfinished = [database.enqueue(apps.pay_slowly, gate="never") for _ in workers]
        payloads = [{"seconds": 0.05}] * (JOBS // 2)
        apps.pay_in_the_database.options(conn=database.conn).enqueue_many(payloads)
        apps.answer.options(conn=database.conn).enqueue_many([{}] * (JOBS // 2))
        paid = "FROM app.payments"
        database.wait_until(lambda: database.count(paid) >= 10, "nothing is paid")
        for job_id in unfinished:
            database.wait_for_mark(job_id)

    own_server.stop(mode=mode)
    for worker in workers:
        worker.wait_for_event("database_unavailable")
    own_server.start()

    with observing(url) as database:
        database.wait_for_all(JOBS + len(unfinished))
        database.assert_paid_once_each(JOBS // 2 + len(unfinished))
        assert database.registered() == 2
        assert {database.job(job_id)[:2] for job_id in unfinished} == {("succeeded", 1)}
    for worker in workers:
        worker.wait_for_event("database_back")
        assert worker.is_alive


@pytest.mark.slow
def test_a_dead_worker_that_was_busy_during_a_restart_is_noticed_at_once(
    own_server: embedded.Server, own_fleet: Fleet, url: str
) -> None:
    """Without a free slot it sends no claim that would reveal the restart."""
    options = ("--lease-seconds", "600", "--heartbeat-seconds", "0.5", "--concurrency", "1")
    killed = own_fleet.started(*options, name="killed")
    with observing(url) as database:
        job_id = database.enqueue(apps.cannot_be_interrupted, in_transaction=False)
        database.wait_for_mark(job_id)
    own_server.stop()
    killed.wait_for_event("database_unavailable")
    own_server.start()
    so_far = len(killed.events_named("lease_renewed"))
    killed.wait_for_event("lease_renewed", times=so_far + 1)
    with observing(url) as database:
        other = own_fleet.started(*options, name="other")

        killed.kill()

        assert_noticed_at_once(other, database, job_id)


@pytest.mark.slow
def test_a_dead_worker_that_was_idle_during_a_restart_is_noticed_at_once(
    own_server: embedded.Server, own_fleet: Fleet, url: str
) -> None:
    options = ("--lease-seconds", "600", "--concurrency", "2")
    killed = own_fleet.started(*options, name="killed")
    own_server.stop()
    own_server.start()
    killed.wait_for_event("database_back")
    with observing(url) as database:
        job_id = database.enqueue(apps.pay, gate="never")
        database.wait_for_mark(job_id)
        other = own_fleet.started(*options, name="other")

        killed.kill()

        assert_noticed_at_once(other, database, job_id)


def test_a_worker_that_finds_no_server_waits_for_it(
    own_server: embedded.Server, own_fleet: Fleet, url: str
) -> None:
    with observing(url) as database:
        job_id = database.enqueue(apps.pay)
    own_server.stop()
    worker = own_fleet.worker()
    worker.wait_for_event("database_unavailable", purpose="worker")
    assert worker.is_alive

    own_server.start()

    worker.wait_for_event("worker_started")
    worker.wait_for_event("commit_ok", job_id=job_id)
    with observing(url) as database:
        assert database.payments(job_id) == 1


@pytest.mark.slow
def test_a_worker_that_finds_the_server_full_waits_for_a_free_connection(
    own_fleet: Fleet, url: str
) -> None:
    with contextlib.ExitStack() as sessions:
        database = ObservedDatabase(sessions.enter_context(psycopg.connect(url, autocommit=True)))
        job_id = database.enqueue(apps.pay)
        fill(url, database, sessions)
        worker = own_fleet.worker()
        unavailable = worker.wait_for_event("database_unavailable", purpose="worker")
        assert "all of the server's connections are in use" in unavailable["error"]
        assert worker.is_alive

    worker.wait_for_event("worker_started")
    worker.wait_for_event("commit_ok", job_id=job_id)
    with observing(url) as database:
        assert database.payments(job_id) == 1


def fill(url: str, database: ObservedDatabase, sessions: contextlib.ExitStack) -> None:
    """Take every connection slot of the server.

    A closed session frees its slot only when its backend has ended.
    """
    (slots,) = database.wait_for_row("SHOW max_connections", [], "no answer")
    for _ in range(int(slots) - 1):  # the test itself has one
        database.wait_until(lambda: has_connected(url, sessions), "a connection slot is not freed")


def has_connected(url: str, sessions: contextlib.ExitStack) -> bool:
    try:
        sessions.enter_context(psycopg.connect(url))
    except psycopg.OperationalError as error:
        assert "too many clients" in str(error)  # noqa: PT017 - the only expected error
        return False
    return True
