"""The test's database: enqueues jobs and reads jobs, payments and marks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from faultline.postgres.sessions import run
from faultline.statements.invariants import INVARIANTS, check
from faultline.task import Task
from tests.waiting import wait_until

BOUND_SECONDS = 45.0
POLL_SECONDS = 0.02

TABLES = """
    CREATE SCHEMA app;
    CREATE TABLE app.payments (job_id uuid, token bigint);
    CREATE TABLE app.gates (name text PRIMARY KEY);
    CREATE TABLE app.marks (
        job_id uuid, token bigint, pid integer, what text, at timestamptz DEFAULT clock_timestamp());
"""
# The advisory lock that a trigger waits for in `held_back`.
HELD_BACK = 4711


class JobView(NamedTuple):
    state: str
    attempts: int
    failed_reason: str | None
    fencing_token: int


class ObservedDatabase:
    """Acts on and observes the database that a test's processes use."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self.conn = conn

    @classmethod
    def build(cls, conn: psycopg.Connection[Any]) -> ObservedDatabase:
        conn.execute(TABLES)
        return cls(conn)

    # ── acting ───────────────────────────────────────────────────────────────────────────────────

    def enqueue(self, task: Task[Any, Any], *, queue: str | None = None, **arguments: Any) -> UUID:
        return task.options(queue=queue, conn=self.conn).enqueue(**arguments).job_id

    def open(self, gate: str) -> None:
        self.conn.execute("INSERT INTO app.gates VALUES (%s)", [gate])

    def expire(self, job_id: UUID) -> None:
        """Move the lease's expiry into the past."""
        self.conn.execute(
            "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() - interval '1 second'"
            " WHERE id = %s",
            [job_id],
        )

    @contextmanager
    def held_back(self, when: str) -> Iterator[None]:
        """Inside the block, a statement that fires this trigger waits."""
        self.conn.execute(
            "CREATE OR REPLACE FUNCTION app.hold_back() RETURNS trigger LANGUAGE plpgsql AS $$"
            f" BEGIN PERFORM pg_advisory_xact_lock_shared({HELD_BACK}); RETURN NULL; END $$"
        )
        self.conn.execute(f"CREATE {when} EXECUTE FUNCTION app.hold_back()")
        self.conn.execute("SELECT pg_advisory_lock(%s)", [HELD_BACK])
        try:
            yield
        finally:
            self.conn.execute("SELECT pg_advisory_unlock(%s)", [HELD_BACK])

    def wait_until_held(self) -> int:
        """The process id of the backend that waits in `held_back`."""
        query = (
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return int(self.wait_for_row(query, [HELD_BACK], "no backend is held back")[0])

    def port_of(self, backend: int) -> int:
        """The client port of this backend."""
        row = self.conn.execute(
            "SELECT client_port FROM pg_stat_activity WHERE pid = %s", [backend]
        ).fetchone()
        assert row is not None
        return int(row[0])

    # ── reading ──────────────────────────────────────────────────────────────────────────────────

    def job(self, job_id: UUID) -> JobView:
        row = self.conn.execute(
            "SELECT state, attempts, failed_reason, fencing_token FROM faultline.jobs WHERE id = %s",
            [job_id],
        ).fetchone()
        assert row is not None
        return JobView(*row)

    def payments(self, job_id: UUID) -> int:
        return self.count("FROM app.payments WHERE job_id = %s", [job_id])

    def count(self, rest: str, params: list[Any] | None = None) -> int:
        row = self.conn.execute(f"SELECT count(*) {rest}", params).fetchone()
        assert row is not None
        return int(row[0])

    def registered(self) -> int:
        return self.count("FROM faultline.workers WHERE lost_at IS NULL")

    def outcomes(self, job_id: UUID) -> list[str]:
        """The outcomes of the attempts that are not in the ledger."""
        query = "SELECT outcome FROM faultline.attempts_log WHERE job_id = %s ORDER BY id"
        return [outcome for (outcome,) in self.conn.execute(query, [job_id])]

    # ── waiting for a state, never for a time ────────────────────────────────────────────────────

    def wait_until(self, condition: Callable[[], bool], otherwise: str) -> None:
        wait_until(condition, lambda: f"{otherwise}: {self.summary()}")

    def wait_for_row(self, query: str, params: list[Any], otherwise: str) -> tuple[Any, ...]:
        rows: list[tuple[Any, ...]] = []

        def found() -> bool:
            rows.extend(self.conn.execute(query, params).fetchall())
            return bool(rows)

        self.wait_until(found, otherwise)
        return rows[0]

    def wait_for_mark(self, job_id: UUID, what: str = "started", *, token: int = 1) -> int:
        """Wait for the mark; return the process id in it."""
        query = "SELECT pid FROM app.marks WHERE job_id = %s AND what = %s AND token >= %s"
        return int(self.wait_for_row(query, [job_id, what, token], f"no mark {what!r}")[0])

    def wait_for_state(self, job_id: UUID, *states: str) -> JobView:
        wanted = states or ("succeeded",)
        self.wait_until(lambda: self.job(job_id).state in wanted, f"the job is not {wanted}")
        return self.job(job_id)

    def wait_past_the_lease(self, job_id: UUID) -> None:
        """Wait until the job's current lease would have expired without a renewal."""
        query = "SELECT lease_expires_at FROM faultline.jobs WHERE id = %s"
        (expires_at,) = self.wait_for_row(query, [job_id], "there is no such job")
        over = "SELECT FROM (SELECT clock_timestamp() > %s AS over) AS lease WHERE over"
        self.wait_for_row(over, [expires_at], "the lease does not expire")

    def wait_for_session(self, purpose: str, query: str = "") -> None:
        """Wait until a session for this purpose is idle after this query."""
        idle = (
            "FROM pg_stat_activity WHERE application_name = %s AND datname = current_database()"
            " AND state = 'idle' AND query NOT LIKE 'SET %%' AND strpos(query, %s) > 0"
        )
        params = [f"faultline {purpose}", query]
        self.wait_until(lambda: self.count(idle, params) > 0, f"no {purpose}")

    def wait_for_all(self, count: int) -> None:
        rest = "FROM faultline.jobs WHERE state = 'succeeded'"
        self.wait_until(lambda: self.count(rest) == count, f"not all {count} have succeeded")

    def summary(self) -> str:
        states = (
            "SELECT state, attempts, count(*), max(last_error) FROM faultline.jobs GROUP BY 1, 2"
        )
        marks = "SELECT what, token, pid FROM app.marks ORDER BY at DESC LIMIT 10"
        return f"{self.conn.execute(states).fetchall()} {self.conn.execute(marks).fetchall()}"

    # ── checking ─────────────────────────────────────────────────────────────────────────────────

    def assert_paid_once_each(self, jobs: int) -> None:
        query = "SELECT count(*), count(DISTINCT job_id) FROM app.payments"
        assert self.conn.execute(query).fetchone() == (jobs, jobs)
        self.assert_in_order()

    def assert_in_order(self) -> None:
        findings = {each.name: run(self.conn, check(each)) for each in INVARIANTS}
        assert not any(findings.values()), findings
