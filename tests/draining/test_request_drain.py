"""`faultline.request_drain`, and the heartbeat that returns the request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

from faultline.postgres.sessions import run
from faultline.statements import protocol, workers

Connection = psycopg.Connection[Any]


def register(conn: Connection, *names: str) -> None:
    for worker in names:
        statement = workers.register_worker(
            worker, host="here", pid=1, queues=["default"], holds_locks=False
        )
        run(conn, statement)


def is_asked(conn: Connection, worker: str) -> bool:
    return run(conn, protocol.heartbeat(worker, [], lease_seconds=1)).is_drain_requested


def ask(conn: Connection, *names: str) -> list[str]:
    """Ask the named workers to drain; all workers if none is named."""
    return [each.worker for each in run(conn, workers.request_drain(names or None))]


def test_the_next_heartbeat_and_every_later_one_return_the_request(
    conn: Connection,
) -> None:
    register(conn, "a", "b", "c")
    assert not is_asked(conn, "a")
    assert ask(conn, "b", "a") == ["a", "b"]
    assert [is_asked(conn, worker) for worker in ("a", "a", "b", "c")] == [True, True, True, False]


def test_a_heartbeat_with_a_request_still_renews_leases(conn: Connection) -> None:
    register(conn, "a")
    wanted = {"queue": "default", "priority": 5, "max_attempts": 1}
    run(conn, protocol.enqueue("t", {}, **wanted))  # type: ignore[arg-type]
    [claim] = run(conn, protocol.claim("a", ["default"], batch_size=1, lease_seconds=9))
    ask(conn)
    beat = run(conn, protocol.heartbeat("a", [claim], lease_seconds=9))
    assert beat.renewals == {claim.id: "renewed"}
    assert beat.is_drain_requested


def test_all_workers_means_those_not_lost_and_a_lost_one_can_be_named(conn: Connection) -> None:
    register(conn, "here", "lost")
    run(conn, workers.remove_dead_workers(["lost"]))
    assert ask(conn) == ["here"]
    [request] = run(conn, workers.request_drain(["lost"]))
    assert request.is_lost
    assert is_asked(conn, "lost")  # in case it reconnects


def test_an_unregistered_worker_is_not_in_the_result(conn: Connection) -> None:
    assert ask(conn) == []
    register(conn, "a")
    assert ask(conn, "b") == []
    assert run(conn, workers.request_drain([])) == []
    assert not is_asked(conn, "a")


def test_a_second_request_and_a_reconnect_change_nothing(conn: Connection) -> None:
    register(conn, "a")
    [first] = run(conn, workers.request_drain(["a"]))
    [second] = run(conn, workers.request_drain(None))
    assert first == second
    register(conn, "a")
    assert is_asked(conn, "a")


def test_a_worker_whose_row_is_locked_gets_the_request_too(
    conn: Connection, connect: Callable[[], Connection]
) -> None:
    register(conn, "a")
    ask(conn)
    with connect() as other, other.transaction():
        other.execute("SELECT FROM faultline.workers WHERE id = 'a' FOR UPDATE")
        assert is_asked(conn, "a")


def test_the_notification_cannot_be_mistaken_for_a_queue(
    conn: Connection, connect: Callable[[], Connection]
) -> None:
    register(conn, "a")
    with connect() as listening:
        listening.execute(f"LISTEN {protocol.CHANNEL}")
        ask(conn)
        [notice] = listening.notifies(timeout=10, stop_after=1)
    assert notice.payload == workers.call_of("a")
    refused = conn.execute("SELECT %s ~ '^[A-Za-z0-9_]'", [notice.payload]).fetchone()
    assert refused == (False,)
