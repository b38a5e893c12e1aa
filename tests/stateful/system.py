"""The database and application that are compared with the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg import IsolationLevel

from faultline import Faultline, Job, StaleLease
from faultline.model import Claim
from faultline.postgres.errors import translated_errors
from faultline.postgres.sessions import Pool, make_pool, run
from faultline.statements.invariants import INVARIANTS
from faultline.statements.statement import Statement
from faultline.task import Task

LEASE_SECONDS = 600.0  # no lease expires by itself: a rule expires it

TABLES = "CREATE TABLE effects (job_id uuid NOT NULL, token bigint NOT NULL)"
# As retention does: only it may delete from the ledger.
RESET = """
    BEGIN;
    SELECT set_config('faultline.verb', 'retention', true);
    DELETE FROM faultline.ledger; DELETE FROM faultline.jobs; DELETE FROM faultline.attempts_log;
    DELETE FROM effects;
    COMMIT
"""
SEEN = """
    SELECT j.id, j.state, j.failed_reason, j.attempts, j.crashes, j.fencing_token, j.lease_id,
           CASE WHEN j.state = 'running' THEN j.lease_owner END, j.lease_seconds,
           j.state = 'running' AND j.lease_expires_at <= clock_timestamp(),
           j.next_run_at <= clock_timestamp(),
           ARRAY(SELECT (l.fencing_token, l.lease_id)::text FROM faultline.ledger AS l
                 WHERE l.job_id = j.id),
           ARRAY(SELECT e.token FROM effects AS e WHERE e.job_id = j.id ORDER BY e.token)
    FROM faultline.jobs AS j
"""
AUDIT = " UNION ALL ".join(
    f"(SELECT '{each.name}', found.* FROM (SELECT v.*::text FROM ({each.query}) AS v) AS found)"
    for each in INVARIANTS
)
INSERT_EFFECT = "INSERT INTO effects VALUES (%s, %s)"
ENTER = "INSERT INTO faultline.ledger (job_id, fencing_token, lease_id) VALUES (%s, %s, %s)"

# Illegal changes from psql, in every state of a job; all of them must be refused.
TAMPERING = (
    "UPDATE faultline.jobs SET state = 'succeeded' WHERE id = %s AND state <> 'succeeded'",
    "UPDATE faultline.jobs SET fencing_token = fencing_token - 1 WHERE id = %s",
    "UPDATE faultline.jobs SET fencing_token = fencing_token - 1, lease_id = gen_random_uuid()"
    " WHERE id = %s AND state <> 'succeeded'",
    "UPDATE faultline.jobs SET lease_id = gen_random_uuid() WHERE id = %s",
    "UPDATE faultline.jobs SET fencing_token = fencing_token + 1 WHERE id = %s",
    "UPDATE faultline.jobs SET state = 'queued', failed_reason = NULL"
    " WHERE id = %s AND state IN ('succeeded', 'failed')",
    "UPDATE faultline.jobs SET state = 'running', lease_id = coalesce(lease_id, gen_random_uuid()),"
    " lease_owner = 'me', lease_expires_at = 'infinity', failed_reason = NULL"
    " WHERE id = %s AND state <> 'running' AND lease_id IS NOT NULL",
    "UPDATE faultline.ledger SET fencing_token = fencing_token + 1 WHERE job_id = %s",
    "DELETE FROM faultline.ledger WHERE job_id = %s",
)


@dataclass(frozen=True)
class HeldLease:
    """A worker that never doubts its lease, so that only the database can refuse it."""

    lease_seconds: float = LEASE_SECONDS
    is_lost: bool = False

    def remaining_seconds(self) -> float:
        return self.lease_seconds


@dataclass(frozen=True)
class Handle:
    """A claim as a worker remembers it."""

    claim: Claim
    job: Job

    @property
    def lease(self) -> tuple[UUID, int, UUID]:
        return self.claim.job_id, self.claim.fencing_token, self.claim.lease_id


class TurnedBack(Exception):
    """The user rolls back what was already fenced."""


class SystemUnderTest:
    def __init__(self, conn: psycopg.Connection[Any], url: str) -> None:
        self.conn = conn
        self.app = Faultline(url)
        self.pool: Pool = make_pool(url, max_size=2, application_name="stateful")
        self.pool.open()
        self.tally: Counter[str] = Counter()
        conn.execute(TABLES)

        @self.app.task(name="charge", max_attempts=3)
        def charge(job: Job, amount: int) -> None: ...

        @self.app.task(name="once", max_attempts=1)
        def once(job: Job, amount: int) -> None: ...

        self.tasks: dict[str, Task[..., Any]] = {"charge": charge, "once": once}

    def close(self) -> None:
        self.pool.close()
        self.app.close()

    def reset(self) -> None:
        self.conn.execute(RESET)

    def run(self, statement: Statement[Any]) -> Any:
        return run(self.conn, statement)

    def handle(self, claim: Claim) -> Handle:
        return Handle(claim, Job(claim, HeldLease(), lambda: self.pool, None))

    # ── seeing ───────────────────────────────────────────────────────────────────────────────────

    def seen(self) -> dict[UUID, tuple[Any, ...]]:
        return {row[0]: row[1:] for row in self.conn.execute(SEEN)}

    def findings(self) -> list[tuple[Any, ...]]:
        return self.conn.execute(AUDIT).fetchall()

    def expire(self, job_id: UUID) -> None:
        self.conn.execute(
            "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() - interval '1 ms'"
            " WHERE id = %s AND state = 'running'",
            [job_id],
        )

    def bring_forward(self, job_id: UUID) -> None:
        self.conn.execute(
            "UPDATE faultline.jobs SET next_run_at = clock_timestamp() WHERE id = %s", [job_id]
        )

    def tamper(self, statement: str, job_id: UUID) -> int:
        """Run an illegal change; returns the number of changed rows, or raises."""
        with translated_errors():
            return self.conn.execute(statement.encode(), [job_id]).rowcount

    # ── writing an effect and committing the job, in every way there is ─────────────────────────

    @contextmanager
    def _own_transaction(self, handle: Handle) -> Iterator[psycopg.Connection[Any]]:
        with self.pool.connection() as conn, translated_errors(), conn.transaction():
            # Outside of blocks the pool's sessions are read-only.
            conn.execute("SET TRANSACTION READ WRITE")
            conn.execute(INSERT_EFFECT, handle.lease[:2])
            yield conn

    def commit_in_transaction(self, handle: Handle) -> None:
        with handle.job.transaction() as conn:
            conn.execute(INSERT_EFFECT, handle.lease[:2])

    def commit_serializable(self, handle: Handle) -> None:
        with handle.job.transaction(isolation=IsolationLevel.SERIALIZABLE) as conn:
            conn.execute(INSERT_EFFECT, handle.lease[:2])

    def commit_own_transaction(self, handle: Handle) -> None:
        with self._own_transaction(handle) as conn:
            handle.job.commit(conn)

    def commit_by_insert(self, handle: Handle) -> None:
        with self._own_transaction(handle) as conn:
            conn.execute(ENTER, handle.lease)

    def commit_by_quiet_insert(self, handle: Handle) -> None:
        with self._own_transaction(handle) as conn:
            conn.execute(f"{ENTER} ON CONFLICT DO NOTHING".encode(), handle.lease)

    def commit_by_posing_as_a_batch(self, handle: Handle) -> None:
        try:
            with self._own_transaction(handle) as conn:
                conn.execute("SELECT set_config('faultline.batch', 'on', true)")
                conn.execute(ENTER, handle.lease)
        except psycopg.errors.UniqueViolation:  # the ledger itself; it has a row for this job
            raise StaleLease("unique") from None

    def write_and_go_on(self, handle: Handle) -> None:
        with handle.job.fenced() as conn:
            conn.execute(INSERT_EFFECT, handle.lease[:2])

    def write_and_turn_back(self, handle: Handle) -> None:
        """Write and fence in a transaction, and then roll back."""
        try:
            with self._own_transaction(handle) as conn:
                handle.job.commit(conn)
                raise TurnedBack
        except TurnedBack:
            return


WAYS_TO_COMMIT: tuple[Callable[[SystemUnderTest, Handle], None], ...] = (
    SystemUnderTest.commit_by_posing_as_a_batch,
    SystemUnderTest.commit_by_quiet_insert,
    SystemUnderTest.commit_by_insert,
    SystemUnderTest.commit_own_transaction,
    SystemUnderTest.commit_serializable,
    SystemUnderTest.commit_in_transaction,
)
