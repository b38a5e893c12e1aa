"""What a handler holds: the job, and the ways to write under its fence."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, overload
from uuid import UUID

from faultline.errors import FaultlineError, FenceNotHeld, InvalidInput, NotCommitted, StaleLease
from faultline.fenced_block import FencedBlock
from faultline.model import Claim, CommitPhase
from faultline.payload import encode_json
from faultline.postgres import driver
from faultline.postgres.bounded import answered_within, half_of
from faultline.postgres.driver import DriverError, IsolationLevel, TransactionStatus
from faultline.postgres.errors import driver_errors
from faultline.postgres.sessions import (
    AsyncConnection,
    AsyncPool,
    Connection,
    Place,
    Pool,
    place_of,
    run,
    run_async,
    sever,
)
from faultline.statements import protocol, transactions
from faultline.statements.statement import Statement

if TYPE_CHECKING:
    from faultline.tracing.attempt import AttemptTrace


# Called with the job and the connection of a block that has just opened.
PrepareTransaction = Callable[["Job", Any], Awaitable[None] | None]


class HeldLease(Protocol):
    """The worker's own view of a lease: how long it may still rely on it."""

    @property
    def lease_seconds(self) -> float: ...
    @property
    def is_lost(self) -> bool: ...
    def remaining_seconds(self) -> float: ...


class Job:
    """One attempt at one job. Handlers receive it as their first argument."""

    _trace: AttemptTrace | None = None
    _prepare: PrepareTransaction | None = None
    # The server froze or was demoted under the attempt: it is released, and no attempt is used up.
    _is_blameless: bool = False

    def __init__(
        self, claim: Claim, lease: HeldLease, pool: Callable[[], Pool], async_pool: AsyncPool | None
    ) -> None:
        self._claim = claim
        self._lease = lease
        self._pool = pool
        self._async_pool = async_pool
        self._connections: set[Connection | AsyncConnection] = set()
        self._is_cut = False  # the attempt is to end: it gets no connection any more
        self._phase = CommitPhase.UNCOMMITTED
        self._refusal: StaleLease | None = (
            None  # a handler that swallows it has still not succeeded
        )
        # A transaction that was to complete the job and was not committed, for the same reason.
        self._not_committed: NotCommitted | None = None
        self._blocks: list[bool] = []  # those that are open, each True if it completes the job
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
        """The fencing token of this claim. An outside store that remembers the highest one it saw
        can refuse a late writer as PostgreSQL does."""
        return self._claim.fencing_token

    @property
    def idempotency_key(self) -> str:
        """The same over all attempts of this job and unlike any other job's, in any database: hand it
        to the outside systems you call, so that they see a repeated call as one."""
        return self._claim.id

    @property
    def lease_remaining(self) -> float:
        """Seconds this worker may still rely on its lease, by its own steady clock; 0 when lost."""
        return max(0.0, self._lease.remaining_seconds())

    @property
    def lease_lost(self) -> bool:
        """True once the worker knows that the lease is gone. Long `def` handlers should look."""
        return self._lease.is_lost

    # ── writing under the fence ──────────────────────────────────────────────────────────────────

    def transaction(self, *, isolation: IsolationLevel | None = None) -> FencedBlock:
        """Your writes, the ledger entry and "succeeded" in one transaction: `with` or `async with`.

        Raises StaleLease when the lease is gone, and then nothing of it is committed.
        """
        return FencedBlock(self, completes_job=True, conn=None, isolation=isolation)

    def fenced(self, conn: Connection | AsyncConnection | None = None) -> FencedBlock:
        """Fenced writes in the middle of a job: they commit now, and the job goes on."""
        return FencedBlock(self, completes_job=False, conn=conn, isolation=None)

    @overload
    def commit(self, conn: Connection, *, result: Any = None) -> None: ...
    @overload
    def commit(self, conn: AsyncConnection, *, result: Any = None) -> Awaitable[None]: ...
    def commit(
        self, conn: Connection | AsyncConnection, *, result: Any = None
    ) -> Awaitable[None] | None:
        """Make this job's success part of a transaction that you own, as its last statement.

        Your COMMIT then decides. If it raises, the connection is cut, so that nothing of that
        transaction can be committed. Inside a savepoint or a nested transaction it is refused, unless
        the transaction began with `expect_commit`.
        """
        self._intend_to_commit("job.commit(conn)")
        text = None if result is None else encode_json(result, what="result")
        self._require_no_block("job.commit(conn)")
        require_transaction(conn, "job.commit(conn)")
        self._phase = CommitPhase.FENCED
        idle_seconds = self._lease.lease_seconds
        statement = protocol.commit(self._claim, result=text, idle_seconds=idle_seconds)
        return self._run(conn, statement, self._committing(conn, "entry"))

    @overload
    def expect_commit(self, conn: Connection) -> None: ...
    @overload
    def expect_commit(self, conn: AsyncConnection) -> Awaitable[None]: ...
    def expect_commit(self, conn: Connection | AsyncConnection) -> Awaitable[None] | None:
        """Have PostgreSQL refuse to commit your transaction unless `commit(conn)` is part of it.

        Call it once, at the beginning of a transaction that you own and before any savepoint. Then
        `commit(conn)` may be called in a nested transaction, as ORMs make them.
        """
        self._intend_to_commit("job.expect_commit(conn)")
        self._require_no_block("job.expect_commit(conn)")
        require_transaction(conn, "job.expect_commit(conn)")
        return self._run(conn, self._open(completes=True), self._sever_on_stale(conn))

    @overload
    def assert_fence(self, conn: Connection) -> None: ...
    @overload
    def assert_fence(self, conn: AsyncConnection) -> Awaitable[None]: ...
    def assert_fence(self, conn: Connection | AsyncConnection) -> Awaitable[None] | None:
        """Raise StaleLease unless the lease holds, and keep others from taking the job over until
        this transaction ends. Above READ COMMITTED it must be the first statement."""
        require_transaction(conn, "job.assert_fence(conn)")
        statement = protocol.assert_fence(self._claim, idle_seconds=self._lease.lease_seconds)
        return self._run(conn, statement, self._sever_on_stale(conn))

    def _open(self, *, completes: bool) -> Statement[None]:
        idle_seconds = self._lease.lease_seconds
        return transactions.open_transaction(
            self._claim, completes=completes, idle_seconds=idle_seconds
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

    def _committing(
        self, conn: Connection | AsyncConnection, how: str
    ) -> contextlib.AbstractContextManager[None]:
        """Where a commit is sent: its refusal is heeded, and where jobs are traced, seen."""
        heeding = self._sever_on_stale(conn, of_any_kind=how == "entry")
        return heeding if self._trace is None else self._trace.committing(heeding, how)

    @contextlib.contextmanager
    def _sever_on_stale(
        self, conn: Connection | AsyncConnection, *, of_any_kind: bool = False
    ) -> Iterator[None]:
        """A refused transaction must not be saved by rolling back to a savepoint, which is all that a
        user who swallows the refusal could still do."""
        try:
            yield
        except StaleLease as error:
            self._refusal = error
            sever(conn)
            raise
        except NotCommitted as error:
            self._not_committed = error
            self._phase = CommitPhase.UNCOMMITTED
            sever(conn)
            raise
        except FenceNotHeld:  # raised outside of savepoints only: the transaction can but roll back
            raise
        except (FaultlineError, DriverError):
            if of_any_kind:
                sever(conn)
            raise

    @contextlib.contextmanager
    def _controlling(self, conn: Connection | AsyncConnection) -> Iterator[None]:
        """Around the statements that open and close a block: bounded, and with errors of our own."""
        with driver_errors(keep_conflicts=True), answered_within(conn, self._limit):
            yield

    @property
    def _limit(self) -> float:
        """How long a statement of our own may take in a block, in seconds."""
        return half_of(self._lease.lease_seconds)

    def _intend_to_commit(self, what: str) -> None:
        """From here on returning is not enough: the handler said that a transaction is to decide."""
        self._not_committed = NotCommitted(
            f"the handler called {what} and returned, but its transaction was not committed",
            hint="let errors pass, or catch them inside: with tx.transaction(): …",
        )

    def _forget_transactions(self) -> None:
        """Before the handler runs again within the same attempt."""
        self._phase = CommitPhase.UNCOMMITTED
        self._not_committed = None

    # ── blocks ───────────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def _block(self, *, completes: bool) -> Iterator[None]:
        """A block that completes the job is the only one; steps may be open at the same time.

        Without a lock, which an interrupt could leave locked: of two that begin at once, each sees
        the other.
        """
        if completes:
            self._intend_to_commit("job.transaction()")
        self._blocks.append(completes)
        try:
            if len(self._blocks) > 1 and any(self._blocks):
                raise _another_block("job.transaction()" if completes else "job.fenced()")
            yield
        finally:
            self._blocks.remove(completes)

    def _require_no_block(self, what: str) -> None:
        if self._blocks:
            raise _another_block(what)

    def _track(self, conn: Connection | AsyncConnection) -> None:
        self._connections.add(conn)
        if self._is_cut:
            sever(conn)

    def _untrack(self, conn: Connection | AsyncConnection) -> None:
        self._connections.discard(conn)

    def _cut_from(self, place: Place) -> None:
        """End the attempt's sessions with a server that the worker has left."""
        for conn in tuple(self._connections):
            if place_of(conn) == place:
                sever(conn)

    def _cut_connections(self) -> None:
        """End the attempt's sessions from outside, so that a thread waiting in one of them returns."""
        self._is_cut = True
        for conn in tuple(self._connections):
            sever(conn)


def require_transaction(conn: Connection | AsyncConnection, what: str) -> None:
    """Refuse a connection on which each statement would be a transaction of its own."""
    status = conn.info.transaction_status
    in_transaction = status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)
    if conn.autocommit and not in_transaction and not conn._num_transactions and not conn.closed:
        raise InvalidInput(
            f"{what} on a connection in autocommit mode, and not in a transaction",
            hint="call it inside of `with conn.transaction():`, together with your writes",
        )


def _another_block(what: str) -> InvalidInput:
    return InvalidInput(
        f"{what} while another block of this job is open: it would wait for itself",
        hint="leave job.transaction() or job.fenced() first; only steps, job.fenced(), may overlap",
    )
