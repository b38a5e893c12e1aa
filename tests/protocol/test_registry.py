"""The registry: other sessions' locks stop no worker; its calls never deadlock."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import psycopg

from faultline.postgres.sessions import run
from faultline.statements import protocol, workers
from faultline.statements.workers import LOCK_CLASS

from .steps import Connect, Connection, end_session, never_waits, one, rows, value

WORKERS = [f"worker {number}" for number in range(12)]


def register(conn: Connection, worker: str, lock_key: int | None = None) -> int:
    statement = workers.register_worker(
        worker, host="h", pid=1, queues=["default"], holds_locks=True, lock_key=lock_key
    )
    return run(conn, statement)


def vanished(conn: Connection) -> list[str]:
    return [worker for (worker,) in rows(conn, "SELECT worker FROM faultline.vanished_workers()")]


def test_a_worker_starts_although_another_session_holds_every_lock_it_might_draw(
    conn: Connection, connect: Connect
) -> None:
    stranger = connect()
    stranger.execute(
        "SELECT pg_advisory_lock(%s, key) FROM generate_series(0, 500) key", [LOCK_CLASS]
    )
    worker = connect()
    key = register(never_waits(worker), "w")
    assert key > 500
    assert vanished(conn) == []
    end_session(conn, worker)
    assert vanished(conn) == ["w"]


def test_a_heartbeat_session_does_not_wait_behind_another_session_that_waits_for_its_lock(
    conn: Connection, connect: Connect
) -> None:
    key = register(conn, "w")
    stranger = connect()
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(
            stranger.execute, "SELECT pg_advisory_lock(%s, %s)", [LOCK_CLASS, key]
        )
        blocked = "SELECT cardinality(pg_blocking_pids(%s)) > 0"
        while not value(conn, blocked, stranger.info.backend_pid):
            assert not waiting.done()
        assert run(never_waits(connect()), workers.hold_worker_lock(key)) is False
        assert register(conn, "w") == key or vanished(conn) == []
        stranger.cancel()
        assert isinstance(waiting.exception(), psycopg.errors.QueryCanceled)


def test_a_heartbeat_reports_that_the_worker_is_not_registered(conn: Connection) -> None:
    beat = protocol.heartbeat("w", [], lease_seconds=15)
    assert run(conn, beat).is_registered is False
    register(conn, "w")
    assert run(conn, beat).is_registered is True


def test_a_worker_whose_row_was_purged_registers_under_the_lock_that_it_holds(
    conn: Connection, connect: Connect
) -> None:
    control, heartbeat = connect(), connect()
    key = register(control, "w")
    assert run(heartbeat, workers.hold_worker_lock(key))
    conn.execute("UPDATE faultline.workers SET last_heartbeat_at = now() - interval '2 days'")
    conn.execute("SELECT faultline.bury_workers('{}')")
    assert rows(conn, "SELECT id FROM faultline.workers") == []
    assert register(heartbeat, "w", lock_key=key) == key
    end_session(conn, heartbeat)
    assert vanished(conn) == []  # its other session still holds the same lock
    end_session(conn, control)
    assert vanished(conn) == ["w"]


def test_workers_register_although_a_promoted_server_issues_their_keys_again(
    conn: Connection, connect: Connect
) -> None:
    """The sequence of keys is behind the workers that the lost server registered."""
    survivor, newcomer, second_survivor = connect(), connect(), connect()
    upcoming = value(conn, "SELECT nextval('faultline.workers_lock_key_seq')") + 1
    assert register(survivor, "survivor", lock_key=upcoming) == upcoming
    key = register(newcomer, "newcomer")  # the sequence issues the survivor's key
    assert key != upcoming
    assert register(second_survivor, "second survivor", lock_key=key) not in (key, upcoming)
    assert vanished(conn) == []
    end_session(conn, newcomer)
    assert vanished(conn) == ["newcomer"]


def test_concurrent_calls_on_the_registry_do_not_deadlock(
    conn: Connection, connect: Connect
) -> None:
    def storm(session: Connection, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(60):
            some = chance.sample(WORKERS, len(WORKERS))
            match chance.randrange(5):
                case 0:
                    session.execute("SELECT faultline.request_drain(%s)", [some])
                case 1:
                    call = "SELECT faultline.register_worker(%s, 'h', 1, '{default}', false)"
                    session.execute(call, [some[0]])
                case 2:
                    session.execute("SELECT faultline.heartbeat(%s)", [some[0]])
                case 3:
                    session.execute("SELECT faultline.deregister_worker(%s)", [some[0]])
                case _:
                    session.execute("SELECT faultline.bury_workers(%s)", [some])

    for worker in WORKERS:
        conn.execute("SELECT faultline.register_worker(%s, 'h', 1, '{}', false)", [worker])
    sessions = [connect() for _ in range(8)]
    with ThreadPoolExecutor(len(sessions)) as threads:
        list(threads.map(storm, sessions, range(len(sessions))))  # raises what a session raised
    assert one(conn, "SELECT count(*) <= %s FROM faultline.workers", len(WORKERS)) == (True,)
