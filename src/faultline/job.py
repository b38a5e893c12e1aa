"""The job that a handler receives, and its methods for writing under the fence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, overload
from uuid import UUID

from faultline.attempt_transactions import AttemptTransactions, HeldLease
from faultline.commit_message import CommitMessage, send_apart, writes_of
from faultline.errors import InvalidInput
from faultline.fenced_block import FencedBlock, PrepareTransaction
from faultline.model import Claim
from faultline.postgres.driver import IsolationLevel
from faultline.postgres.sessions import AsyncPool, Pool
from faultline.results import encode_result
from faultline.statements import protocol
from faultline.user_block import UserBlock
from faultline.user_connections import (
    AnyConnection,
    AsynchronousConnection,
    AsyncpgPool,
    DjangoDatabase,
    SyncConnection,
    run_guarded,
    user_connection,
)

if TYPE_CHECKING:
    from faultline.adapters.sqlalchemy import FencedSession

C = TypeVar("C", bound=AnyConnection)
ReportProgress = Callable[[Claim, float, str | None], None]
_MESSAGE_LENGTH = 500  # as in faultline.job_progress


class Job:
    """One attempt at one job. Handlers receive it as their first argument."""

    def __init__(
        self,
        claim: Claim,
        lease: HeldLease,
        pool: Callable[[], Pool],
        async_pool: AsyncPool | None,
        *,
        transactions: AttemptTransactions | None = None,
        prepare: PrepareTransaction | None = None,
        report: ReportProgress | None = None,
        session_makers: dict[str, Any] | None = None,
    ) -> None:
        self._claim = claim
        self._lease = lease
        self._pool = pool
        self._async_pool = async_pool
        self._transactions = transactions or AttemptTransactions(claim, lease)
        self._prepare = prepare
        self._report = report
        self._session_makers = session_makers or {}
        self.result: Any = None
        """The result to store: JSON, at most 1 MiB; None for what the handler returns.

        A handler that commits the job itself sets it before: inside of `transaction()`, or by the
        `result` of `commit()`. Later values are not stored, and the worker logs `result_discarded`.
        """

    def __repr__(self) -> str:
        return f"<Job {self.id} of {self.task}, attempt {self.attempt}, token {self.token}>"

    @property
    def id(self) -> UUID:
        return self._claim.job_id

    @property
    def task(self) -> str:
        return self._claim.task

    @property
    def queue(self) -> str:
        return self._claim.queue

    @property
    def attempt(self) -> int:
        """1 for the first attempt."""
        return self._claim.attempt

    @property
    def max_attempts(self) -> int:
        return self._claim.max_attempts

    @property
    def scheduled_for(self) -> datetime | None:
        """The planned time of the schedule that enqueued this job; None for other jobs.

        The job may start much later than that. All attempts have the same planned time.
        """
        return self._claim.scheduled_for

    @property
    def token(self) -> int:
        """The fencing token of this claim.

        An outside store that remembers the highest token can refuse a late writer as PostgreSQL does.
        """
        return self._claim.fencing_token

    @property
    def effect_key(self) -> str:
        """A key that is the same for all attempts of this job, and unique among jobs.

        Pass it to the outside systems you call, so that they treat a repeated call as one.
        """
        return self._claim.id

    @property
    def lease_remaining(self) -> float:
        """Seconds this worker may still rely on its lease, by its own clock; 0 when lost."""
        return max(0.0, self._lease.remaining_seconds())

    @property
    def lease_lost(self) -> bool:
        """True once the worker knows that the lease is lost. Long handlers check it."""
        return self._lease.is_lost

    def progress(self, fraction: float, message: str | None = None) -> None:
        """Report how far this attempt is, from 0 to 1, and what it does now.

        It returns at once, in plain and async handlers. The worker sends the newest report about once a
        second, outside of the handler's transaction, and the database records it only while the lease is
        held: a stale attempt's report is dropped. Nothing but an invalid argument raises an error.
        """
        fraction, message = _checked_fraction(fraction), _checked_message(message)
        if self._report is not None and not self._lease.is_lost:
            self._report(self._claim, fraction, message)

    # ── writing under the fence ──────────────────────────────────────────────────────────────────

    @overload
    def transaction(self, *, isolation: IsolationLevel | None = None) -> FencedBlock: ...
    @overload
    def transaction(self, conn: AsyncpgPool) -> UserBlock[Any]: ...
    @overload
    def transaction(self, conn: C) -> UserBlock[C]: ...
    def transaction(
        self, conn: Any = None, *, isolation: IsolationLevel | None = None
    ) -> FencedBlock | UserBlock[Any]:
        """Your writes, the ledger entry and the job's success in one transaction.

        Use it with `with` or `async with`. It raises StaleLease when the lease is lost, and then commits
        nothing. With `conn`, a connection of yours or a pool of asyncpg, the transaction is there.
        """
        return self._block(conn, completes_job=True, isolation=isolation)

    def atomic(self, using: str | None = None) -> UserBlock[DjangoDatabase]:
        """Django's `transaction.atomic()` for what completes this job; use it with `with`.

        Your writes by Django's ORM, the ledger entry and the job's success are one transaction, or nothing is
        committed and it raises StaleLease. `using` is an alias of DATABASES. Nested `atomic()` blocks are
        savepoints. It must be the outermost block.
        """
        from faultline.adapters.django.connection import connection_of_attempt

        return UserBlock(self, self._transactions, connection_of_attempt(using), completes=True)

    @overload
    def fenced(self) -> FencedBlock: ...
    @overload
    def fenced(self, conn: AsyncpgPool) -> UserBlock[Any]: ...
    @overload
    def fenced(self, conn: C) -> UserBlock[C]: ...
    def fenced(self, conn: Any = None) -> FencedBlock | UserBlock[Any]:
        """Fenced writes in the middle of a job: they commit now, and the job goes on.

        In a transaction of yours that has begun, they commit with it.
        """
        return self._block(conn, completes_job=False)

    def session(self, sessions: Callable[[], Any] | None = None) -> FencedSession:
        """A SQLAlchemy session under the fence: its commit is the job's commit.

        Use it with `with` or, for an AsyncSession, `async with`. The block commits at its end, or where the
        handler calls `session.commit()`; after that the session only reads. `sessions` makes the session,
        for example a sessionmaker; without it, what `faultline.adapters.sqlalchemy.use_sessions` named.
        """
        from faultline.adapters.sqlalchemy import FencedSession

        return FencedSession(self, self._transactions, self._session_makers, sessions)

    @overload
    def commit(self, conn: SyncConnection, *, result: Any = None) -> None: ...
    @overload
    def commit(self, conn: AsynchronousConnection, *, result: Any = None) -> Awaitable[None]: ...
    def commit(self, conn: AnyConnection, *, result: Any = None) -> Awaitable[None] | None:
        """Complete this job in a transaction that you own, as its last statement.

        `conn` is a connection of psycopg, asyncpg or Django, or a session or connection of SQLAlchemy.
        `result` sets `job.result`. Your COMMIT then decides. If this method raises, the connection is closed,
        so that nothing of that transaction can be committed. Inside a savepoint or a nested transaction it
        is refused, unless the transaction began with `expect_commit`.
        """
        attempt, users = self._transactions, user_connection(conn)
        attempt.require_commit("job.commit(conn)")
        attempt.require_no_block("job.commit(conn)")
        users.require_transaction("job.commit(conn)")
        if result is not None:
            self.result = result
        try:
            attempt.stored_result = encode_result(self.result)
        except InvalidInput:
            users.sever()
            raise
        idle_seconds = self._lease.lease_seconds
        statement = protocol.commit(
            self._claim, result=attempt.stored_result, idle_seconds=idle_seconds
        )
        guard = attempt.committing(users, "entry")
        return run_guarded(users, statement, guard, before=attempt.note_fenced)

    def commit_with(
        self, statement: Any, params: Any = None, *, also: Sequence[Any] = (), result: Any = None
    ) -> Awaitable[None]:
        """Write, and complete this job, in one message and one transaction.

        For a job whose writes are known at its end: `await job.commit_with("INSERT …", (a, b))`, without
        `await` in a plain handler. `also` has more statements, `(statement, params)` each. It is as safe as
        `transaction()`, and saves two of its three round trips. Rows are not returned. An error of a
        statement is raised as it is, and nothing is committed. `result` sets `job.result`.
        """
        if result is not None:
            self.result = result
        writes = writes_of(statement, params, also)
        if self._prepare is not None:
            return send_apart(self, writes, is_async=self._async_pool is not None)
        block = self._block(None, completes_job=True)
        assert isinstance(block, FencedBlock)  # noqa: S101 - without a connection
        return CommitMessage(
            block, self._transactions, writes, pool=self._pool, async_pool=self._async_pool
        ).send()

    @overload
    def expect_commit(self, conn: SyncConnection) -> None: ...
    @overload
    def expect_commit(self, conn: AsynchronousConnection) -> Awaitable[None]: ...
    def expect_commit(self, conn: AnyConnection) -> Awaitable[None] | None:
        """Make PostgreSQL refuse your COMMIT unless `commit(conn)` is part of it.

        Call it once, at the beginning of a transaction that you own and before any savepoint. Then
        `commit(conn)` may be called in a nested transaction, as ORMs do.
        """
        users = user_connection(conn)
        self._transactions.require_commit("job.expect_commit(conn)")
        self._transactions.require_no_block("job.expect_commit(conn)")
        users.require_transaction("job.expect_commit(conn)")
        statement = self._transactions.open_statement(completes=True)
        return run_guarded(users, statement, self._transactions.sever_on_stale(users))

    @overload
    def assert_fence(self, conn: SyncConnection) -> None: ...
    @overload
    def assert_fence(self, conn: AsynchronousConnection) -> Awaitable[None]: ...
    def assert_fence(self, conn: AnyConnection) -> Awaitable[None] | None:
        """Raise StaleLease unless the lease holds, and keep it until the transaction ends.

        No other worker can claim the job meanwhile. Above READ COMMITTED it must be the first statement.
        """
        users = user_connection(conn)
        users.require_transaction("job.assert_fence(conn)")
        statement = protocol.assert_fence(self._claim, idle_seconds=self._lease.lease_seconds)
        return run_guarded(users, statement, self._transactions.sever_on_stale(users))

    def _block(
        self, conn: object | None, *, completes_job: bool, isolation: IsolationLevel | None = None
    ) -> FencedBlock | UserBlock[Any]:
        if conn is not None:
            if isolation is not None:
                raise InvalidInput(
                    "isolation is for connections of the worker", hint="set it on your connection"
                )
            return UserBlock(self, self._transactions, conn, completes=completes_job)
        return FencedBlock(
            self,
            self._transactions,
            pool=self._pool,
            async_pool=self._async_pool,
            prepare=self._prepare,
            completes_job=completes_job,
            isolation=isolation,
        )


def _checked_fraction(fraction: object) -> float:
    if isinstance(fraction, int | float) and not isinstance(fraction, bool) and 0 <= fraction <= 1:
        return float(fraction)
    raise InvalidInput(
        f"job.progress needs a fraction from 0 to 1, not {fraction!r}",
        hint="divide by the total: job.progress(done / total)",
    )


def _checked_message(message: object) -> str | None:
    """The beginning of the message, without what PostgreSQL cannot store."""
    if message is None:
        return None
    if not isinstance(message, str):
        raise InvalidInput(f"job.progress needs a str as its message, not {message!r}")
    text = message[:_MESSAGE_LENGTH].replace("\x00", "\ufffd")
    return text.encode("utf-8", "replace").decode()
