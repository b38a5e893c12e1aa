"""The job that a handler receives, and its methods for writing under the fence."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, overload
from uuid import UUID

from faultline.attempt_transactions import AttemptTransactions, HeldLease
from faultline.errors import InvalidInput
from faultline.fenced_block import FencedBlock, PrepareTransaction
from faultline.model import Claim, CommitPhase
from faultline.payload import encode_json
from faultline.postgres import driver
from faultline.postgres.driver import IsolationLevel, TransactionStatus
from faultline.postgres.sessions import (
    AsyncConnection,
    AsyncPool,
    Connection,
    Pool,
    run,
    run_async,
)
from faultline.statements import protocol
from faultline.statements.statement import Statement


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
    ) -> None:
        self._claim = claim
        self._lease = lease
        self._pool = pool
        self._async_pool = async_pool
        self._transactions = transactions or AttemptTransactions(claim, lease)
        self._prepare = prepare
        self.result: Any = None
        """Stored in the ledger by `transaction()`; JSON, at most 1 MiB."""

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
    def token(self) -> int:
        """The fencing token of this claim.

        An outside store that remembers the highest token can refuse a late writer as PostgreSQL does.
        """
        return self._claim.fencing_token

    @property
    def idempotency_key(self) -> str:
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

    # ── writing under the fence ──────────────────────────────────────────────────────────────────

    def transaction(self, *, isolation: IsolationLevel | None = None) -> FencedBlock:
        """Your writes, the ledger entry and the job's success in one transaction.

        Use it with `with` or `async with`. It raises StaleLease when the lease is lost, and then commits
        nothing.
        """
        return self._block(completes_job=True, isolation=isolation)

    def fenced(self, conn: Connection | AsyncConnection | None = None) -> FencedBlock:
        """Fenced writes in the middle of a job: they commit now, and the job goes on."""
        return self._block(completes_job=False, conn=conn)

    @overload
    def commit(self, conn: Connection, *, result: Any = None) -> None: ...
    @overload
    def commit(self, conn: AsyncConnection, *, result: Any = None) -> Awaitable[None]: ...
    def commit(
        self, conn: Connection | AsyncConnection, *, result: Any = None
    ) -> Awaitable[None] | None:
        """Complete this job in a transaction that you own, as its last statement.

        Your COMMIT then decides. If this method raises, the connection is closed, so that nothing of that
        transaction can be committed. Inside a savepoint or a nested transaction it is refused, unless the
        transaction began with `expect_commit`.
        """
        self._transactions.require_commit("job.commit(conn)")
        text = None if result is None else encode_json(result, what="result")
        self._transactions.require_no_block("job.commit(conn)")
        require_transaction(conn, "job.commit(conn)")
        self._transactions.phase = CommitPhase.FENCED
        idle_seconds = self._lease.lease_seconds
        statement = protocol.commit(self._claim, result=text, idle_seconds=idle_seconds)
        return self._run(conn, statement, self._transactions.committing(conn, "entry"))

    @overload
    def expect_commit(self, conn: Connection) -> None: ...
    @overload
    def expect_commit(self, conn: AsyncConnection) -> Awaitable[None]: ...
    def expect_commit(self, conn: Connection | AsyncConnection) -> Awaitable[None] | None:
        """Make PostgreSQL refuse your COMMIT unless `commit(conn)` is part of it.

        Call it once, at the beginning of a transaction that you own and before any savepoint. Then
        `commit(conn)` may be called in a nested transaction, as ORMs do.
        """
        self._transactions.require_commit("job.expect_commit(conn)")
        self._transactions.require_no_block("job.expect_commit(conn)")
        require_transaction(conn, "job.expect_commit(conn)")
        statement = self._transactions.open_statement(completes=True)
        return self._run(conn, statement, self._transactions.sever_on_stale(conn))

    @overload
    def assert_fence(self, conn: Connection) -> None: ...
    @overload
    def assert_fence(self, conn: AsyncConnection) -> Awaitable[None]: ...
    def assert_fence(self, conn: Connection | AsyncConnection) -> Awaitable[None] | None:
        """Raise StaleLease unless the lease holds, and keep it until the transaction ends.

        No other worker can claim the job meanwhile. Above READ COMMITTED it must be the first statement.
        """
        require_transaction(conn, "job.assert_fence(conn)")
        statement = protocol.assert_fence(self._claim, idle_seconds=self._lease.lease_seconds)
        return self._run(conn, statement, self._transactions.sever_on_stale(conn))

    def _block(
        self,
        *,
        completes_job: bool,
        conn: Connection | AsyncConnection | None = None,
        isolation: IsolationLevel | None = None,
    ) -> FencedBlock:
        return FencedBlock(
            self,
            self._transactions,
            pool=self._pool,
            async_pool=self._async_pool,
            prepare=self._prepare,
            completes_job=completes_job,
            conn=conn,
            isolation=isolation,
        )

    def _run(
        self,
        conn: Connection | AsyncConnection,
        statement: Statement[None],
        guard: contextlib.AbstractContextManager[None],
    ) -> Awaitable[None] | None:
        if isinstance(conn, driver.AsyncConnection):
            return self._run_async(conn, statement, guard)
        with guard:
            return run(conn, statement)

    async def _run_async(
        self,
        conn: AsyncConnection,
        statement: Statement[None],
        guard: contextlib.AbstractContextManager[None],
    ) -> None:
        with guard:
            await run_async(conn, statement)


def require_transaction(conn: Connection | AsyncConnection, what: str) -> None:
    """Refuse a connection in autocommit mode that is not in a transaction."""
    status = conn.info.transaction_status
    in_transaction = status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)
    if conn.autocommit and not in_transaction and not conn._num_transactions and not conn.closed:
        raise InvalidInput(
            f"{what} on a connection in autocommit mode, and not in a transaction",
            hint="call it inside of `with conn.transaction():`, together with your writes",
        )
