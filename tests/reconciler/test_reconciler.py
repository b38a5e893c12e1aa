"""Recovery: expired leases, dead workers, and which of many reconcilers acts."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import psycopg

from faultline.reconciler import Reconciler
from faultline.statements import workers
from tests.running import Connection, EventTap, background, expire, value
from tests.waiting import wait_until

SESSIONS = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'faultline reconciler'"
    " AND datname = current_database()"
)
LEADER = (
    "SELECT l.pid FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)"
    f" WHERE l.locktype = 'advisory' AND l.classid = {workers.LOCK_CLASS} AND l.objid = 0"
    " AND l.granted AND a.datname = current_database()"
)


# ── a reconciler at work ─────────────────────────────────────────────────────────────────────────


def claimed(conn: Connection, *, worker: str = "gone", max_attempts: int = 5) -> UUID:
    call = "SELECT job_id FROM faultline.enqueue('t', max_attempts => %s)"
    job_id: UUID = value(conn, call, max_attempts)
    conn.execute("SELECT faultline.claim(%s, '{default}', 1, '1 hour')", [worker])
    return job_id


def state(conn: Connection, job_id: UUID) -> str:
    return str(value(conn, "SELECT state FROM faultline.jobs WHERE id = %s", job_id))


def test_an_expired_lease_is_reconciled_without_any_worker(
    conn: Connection, database_url: str, events: EventTap
) -> None:
    job_id = claimed(conn)
    with background(Reconciler(database_url).run):
        wait_until(lambda: events.of("reconciler_leading"))
        assert state(conn, job_id) == "running"
        expire(conn, job_id)
        wait_until(lambda: state(conn, job_id) == "queued")
        [event] = wait_until(lambda: events.of("lease_reaped"))
    assert event["job_id"] == str(job_id)
    assert (event["token"], event["lost_worker"], event["cause"]) == (1, "gone", "expired")


def test_the_job_of_a_dead_worker_is_reconciled_before_its_lease_ends(
    conn: Connection, connect: Callable[[], Connection], database_url: str, events: EventTap
) -> None:
    mortal = connect()
    register = "SELECT faultline.register_worker('mortal', 'host', 1, '{default}', true)"
    mortal.execute(register)
    job_id = claimed(conn, worker="mortal")
    with background(Reconciler(database_url).run):
        wait_until(lambda: events.of("reconciler_leading"))
        assert state(conn, job_id) == "running"
        mortal.close()
        wait_until(lambda: state(conn, job_id) == "queued")
        [event] = wait_until(lambda: events.of("lease_reaped"))
        assert event["cause"] == "worker_lost"
        assert [line["worker"] for line in events.of("worker_lost")] == ["mortal"]
        lost = "SELECT lost_at IS NOT NULL FROM faultline.workers"
        wait_until(lambda: value(conn, lost), "its burial")


def test_a_job_that_kills_its_workers_is_declared_poison(
    conn: Connection, database_url: str, events: EventTap
) -> None:
    job_id = claimed(conn, max_attempts=1)
    expire(conn, job_id)
    with background(Reconciler(database_url).run):
        [event] = wait_until(lambda: events.of("job_dead"))
    assert (event["job_id"], event["reason"]) == (str(job_id), "poison")
    row = conn.execute("SELECT state, failed_reason FROM faultline.jobs").fetchone()
    assert row == ("failed", "poison")


def test_of_two_reconcilers_one_leads_and_the_other_takes_over(
    conn: Connection, database_url: str, events: EventTap
) -> None:
    with background(Reconciler(database_url).run), background(Reconciler(database_url).run):
        first = wait_until(lambda: conn.execute(LEADER).fetchall())
        wait_until(lambda: len(conn.execute(SESSIONS).fetchall()) == 2)
        assert conn.execute(LEADER).fetchall() == first
        conn.execute("SELECT pg_terminate_backend(%s)", first[0])
        wait_until(lambda: conn.execute(LEADER).fetchall() not in ([], first))
        job_id = claimed(conn)
        expire(conn, job_id)
        wait_until(lambda: state(conn, job_id) == "queued")
        # Logged after the job was reconciled and PostgreSQL has answered.
        wait_until(lambda: events.of("lease_reaped"))
    assert len(events.of("lease_reaped")) == 1


def test_a_reconciler_that_waits_among_many_workers_keeps_its_session(
    conn: Connection, database_url: str, events: EventTap
) -> None:
    """A follower among many polls seldom; PostgreSQL must not end its idle session."""
    with psycopg.connect(database_url) as leader:
        leader.execute("SELECT pg_advisory_lock(%s, 0)", [workers.LOCK_CLASS])
        conn.execute(
            "INSERT INTO faultline.workers (id, host, pid, queues, holds_locks)"
            " SELECT 'w' || n, 'host', n, '{default}', false FROM generate_series(1, 300) AS n"
        )
        asked = (
            "SELECT pid, query_start FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'faultline reconciler' AND query ~ 'pg_try_advisory_lock'"
        )
        with background(Reconciler(database_url).run):
            first = wait_until(lambda: conn.execute(asked).fetchall())
            again = wait_until(
                lambda: [row for row in conn.execute(asked).fetchall() if row not in first],
                "its second question",
            )
        assert again[0][0] == first[0][0], "the server ended its session while it waited"
    assert events.of("database_unavailable") == []
