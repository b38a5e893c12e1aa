"""Lost attempts and takeovers, as the metrics read them from the log."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest

from faultline.model import Claim
from faultline.postgres.sessions import run
from faultline.statements import protocol, workers
from faultline.statements.lost_attempts import LostAttempts, log_end, lost_since, takeovers

Connection = psycopg.Connection[Any]
EXPIRE = "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() - interval '1 second'"


def enqueue(conn: Connection, *, queue: str = "default", max_attempts: int = 5) -> UUID:
    statement = protocol.enqueue("t", {}, queue=queue, priority=5, max_attempts=max_attempts)
    return run(conn, statement).job_id


def claim(conn: Connection, worker: str, *, queue: str = "default") -> Claim:
    [claimed] = run(conn, protocol.claim(worker, [queue], batch_size=1, lease_seconds=60))
    return claimed


def lose(conn: Connection, claimed: Claim) -> None:
    conn.execute(f"{EXPIRE} WHERE id = %s", [claimed.id])
    run(conn, protocol.reconcile(max_jobs=10))


def silence(conn: Connection, worker: str, seconds: int) -> None:
    """Let its last heartbeat, and every claim, be so long ago."""
    ago = f"clock_timestamp() - interval '{seconds} seconds'"
    conn.execute(f"UPDATE faultline.workers SET last_heartbeat_at = {ago} WHERE id = %s", [worker])


def register(conn: Connection, worker: str) -> None:
    queues = ["default"]
    run(
        conn,
        workers.register_worker(worker, host="h", pid=1, queues=queues, holds_locks=False),
    )


def test_a_claim_after_a_loss_is_a_takeover(conn: Connection) -> None:
    enqueue(conn)
    first = claim(conn, "first")
    assert run(conn, takeovers([first])) == []
    lose(conn, first)
    second = claim(conn, "second")
    [takeover] = run(conn, takeovers([second]))
    assert takeover.cause == "expired"
    assert takeover.recovery_seconds >= 0


def test_a_dead_worker_is_named_as_the_cause(conn: Connection) -> None:
    enqueue(conn)
    claim(conn, "dead")
    run(conn, protocol.reconcile(max_jobs=10, dead_workers=["dead"]))
    [takeover] = run(conn, takeovers([claim(conn, "heir")]))
    assert takeover.cause == "worker_lost"


def test_a_retry_after_a_takeover_is_none(conn: Connection) -> None:
    enqueue(conn)
    lose(conn, claim(conn, "first"))
    second = claim(conn, "second")
    run(conn, protocol.fail(second, error="no"))
    third = claim(conn, "third")
    assert third.crashes == 1
    assert run(conn, takeovers([third])) == []
    assert len(run(conn, takeovers([second, third]))) == 1


def test_recovery_starts_at_the_last_heartbeat_of_the_lost_worker(conn: Connection) -> None:
    register(conn, "silent")
    enqueue(conn)
    first = claim(conn, "silent")
    conn.execute("UPDATE faultline.jobs SET claimed_at = claimed_at - interval '1 hour'")
    silence(conn, "silent", 600)
    lose(conn, first)
    [takeover] = run(conn, takeovers([claim(conn, "heir")]))
    assert 600 <= takeover.recovery_seconds < 3600


def test_recovery_starts_at_the_claim_of_a_worker_without_heartbeats(conn: Connection) -> None:
    enqueue(conn)
    first = claim(conn, "bare")  # a SQL client, which registers nowhere
    conn.execute("UPDATE faultline.jobs SET claimed_at = claimed_at - interval '1 hour'")
    lose(conn, first)
    [takeover] = run(conn, takeovers([claim(conn, "heir")]))
    assert takeover.recovery_seconds >= 3600


def test_recovery_begins_with_the_loss_where_the_worker_lives(conn: Connection) -> None:
    register(conn, "alive")
    enqueue(conn)
    first = claim(conn, "alive")
    conn.execute("UPDATE faultline.jobs SET claimed_at = claimed_at - interval '1 hour'")
    lose(conn, first)
    run(conn, protocol.heartbeat("alive", [], lease_seconds=1))
    [takeover] = run(conn, takeovers([claim(conn, "heir")]))
    assert takeover.recovery_seconds < 3600


def test_the_log_is_read_from_where_it_was_left(conn: Connection) -> None:
    start = run(conn, log_end())
    assert run(conn, lost_since(start)) == LostAttempts(start, 0, {})
    for queue, attempts in (("a", 1), ("a", 5), ("b", 1)):
        enqueue(conn, queue=queue, max_attempts=attempts)
        lose(conn, claim(conn, "lost", queue=queue))
    enqueue(conn, queue="c")
    run(conn, protocol.fail(claim(conn, "alive", queue="c"), error="no", reason="rejected"))
    run(conn, protocol.cancel(enqueue(conn, queue="d")))
    found = run(conn, lost_since(start))
    assert found.expired == 3
    # The rejected one is counted by the worker that rejected it.
    assert found.dead_jobs == {("a", "poison"): 1, ("b", "poison"): 1, ("d", "cancelled"): 1}
    assert found.last_id == run(conn, log_end()) > start
    assert run(conn, lost_since(found.last_id)) == LostAttempts(found.last_id, 0, {})


@pytest.mark.parametrize("many", [20_000])
def test_neither_read_scans_the_jobs(conn: Connection, many: int) -> None:
    conn.execute("INSERT INTO faultline.jobs (task) SELECT 't' FROM generate_series(1, %s)", [many])
    conn.execute("ANALYZE faultline.jobs, faultline.attempts_log")
    lose(conn, claim(conn, "lost"))
    claims = run(conn, protocol.claim("w", ["default"], batch_size=500, lease_seconds=60))
    for statement in (takeovers(claims), lost_since(0)):
        rows = conn.execute(f"EXPLAIN {statement.sql}", statement.params).fetchall()
        plan = "\n".join(line for (line,) in rows)
        assert "Seq Scan on jobs" not in plan, plan
        assert "jobs_pkey" in plan, plan


def test_the_role_of_workers_may_read_them(server_url: str, database_url: str) -> None:
    from faultline.postgres.migrate import migrate

    migrate(database_url, roles=True)
    with psycopg.connect(database_url, autocommit=True) as conn:
        enqueue(conn)
        first = claim(conn, "first")
        conn.execute("SET ROLE faultline_worker")
        assert run(conn, takeovers([first])) == []
        assert run(conn, lost_since(run(conn, log_end()))).expired == 0
