"""Steps real sessions, one statement at a time, in an order that the test decides.

Every actor is a session with a thread, so a statement that waits for a lock does not block the test.
Which session waits is read from the server, and not guessed from the time that a statement takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import psycopg

from faultline.model import Claim, Renewal
from faultline.postgres.sessions import run
from faultline.statements import jobs, protocol
from faultline.statements.statement import Statement

Connect = Callable[[], psycopg.Connection[Any]]

BOUND_SECONDS = 60.0
POLL_SECONDS = 0.005
LEASE_SECONDS = 600.0  # no lease expires by itself: `expire` does it

# Sessions of other databases are left out: NOTIFY makes them wait for one another, briefly.
_WAITS_FOR_A_NEIGHBOUR = """
    SELECT EXISTS (SELECT FROM pg_stat_activity AS a
                   WHERE a.pid = ANY (pg_blocking_pids(%s)) AND a.datname = current_database())
"""


class Actor:
    """One session: `start` begins a statement, `result` awaits it or raises its error."""

    def __init__(self, connect: Connect) -> None:
        self._conn = connect()
        self._observer = connect()
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._running: Future[Any] | None = None

    def start(self, work: str | Statement[Any], params: tuple[Any, ...] = ()) -> None:
        assert self._running is None, "the last statement's result was not taken"
        if isinstance(work, str):
            work = Statement(work, params, list)
        self._running = self._thread.submit(run, self._conn, work)

    def is_blocked(self) -> bool:
        """Whether the statement waits for a lock; False once it has finished."""
        assert self._running is not None, "nothing was started"
        deadline = time.monotonic() + BOUND_SECONDS
        while not wait([self._running], timeout=POLL_SECONDS).done:
            row = self._observer.execute(
                _WAITS_FOR_A_NEIGHBOUR, [self._conn.info.backend_pid]
            ).fetchone()
            if row == (True,):
                return True
            assert time.monotonic() < deadline, "neither waits for a lock nor finishes"
        return False

    def result(self) -> Any:
        assert self._running is not None, "nothing was started"
        running, self._running = self._running, None
        return running.result(timeout=BOUND_SECONDS)

    def run(self, work: str | Statement[Any], params: tuple[Any, ...] = ()) -> Any:
        """Run a statement that must not wait for a lock."""
        self.start(work, params)
        assert not self.is_blocked(), f"waits for a lock: {work}"
        return self.result()

    def begin(self, isolation: str = "READ COMMITTED") -> None:
        self._conn.execute(f"BEGIN ISOLATION LEVEL {isolation}".encode())

    def commit(self) -> None:
        self._conn.execute("COMMIT")

    def rollback(self) -> None:
        self._conn.execute("ROLLBACK")


def enqueued(conn: psycopg.Connection[Any], count: int = 1, max_attempts: int = 5) -> None:
    run(
        conn,
        protocol.enqueue_many(
            "task", [{}] * count, queue="default", priority=5, max_attempts=max_attempts
        ),
    )


def claim_as(worker: str, batch_size: int = 100) -> Statement[list[Claim]]:
    return protocol.claim(worker, ["default"], batch_size=batch_size, lease_seconds=LEASE_SECONDS)


def beat_as(worker: str, *claims: Claim) -> Statement[dict[str, Renewal]]:
    beat = protocol.heartbeat(worker, claims, lease_seconds=LEASE_SECONDS)
    return Statement(beat.sql, beat.params, lambda rows: beat.read(rows).renewals)


def claimed(
    conn: psycopg.Connection[Any], count: int = 1, worker: str = "first", max_attempts: int = 5
) -> list[Claim]:
    """The jobs that one worker holds, by id."""
    enqueued(conn, count, max_attempts)
    return sorted(run(conn, claim_as(worker, count)), key=lambda claim: claim.job_id)


def expire(conn: psycopg.Connection[Any], *claims: Claim) -> None:
    conn.execute(
        "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() - interval '1 second'"
        " WHERE id = ANY (%s)",
        [[claim.job_id for claim in claims]],
    )


def state_of(conn: psycopg.Connection[Any], claim: Claim) -> str:
    job = run(conn, jobs.get_job(claim.job_id))
    assert job is not None
    return job.state


def assert_settled(conn: psycopg.Connection[Any]) -> None:
    """Let another worker finish the rest, and check that every job has ended once.

    A job has a ledger entry if and only if it succeeded, under its newest token.
    """
    conn.execute(
        "UPDATE faultline.jobs SET next_run_at = clock_timestamp(),"
        " lease_expires_at = CASE WHEN state = 'running' THEN clock_timestamp() END"
        " WHERE state IN ('queued', 'running')"
    )
    for claim in run(conn, claim_as("finisher")):
        run(conn, protocol.commit(claim))
    broken = conn.execute(
        """
        SELECT j.id, j.state, j.fencing_token, array_agg(l.fencing_token)
        FROM faultline.jobs AS j LEFT JOIN faultline.ledger AS l ON l.job_id = j.id
        GROUP BY j.id
        HAVING NOT CASE j.state
            WHEN 'succeeded' THEN array_agg(l.fencing_token) = ARRAY[j.fencing_token]
                              AND array_agg(l.lease_id) = ARRAY[j.lease_id]
            WHEN 'failed' THEN count(l.job_id) = 0
            ELSE false END
        """
    ).fetchall()
    assert broken == []
