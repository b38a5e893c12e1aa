"""What a handler holds: the job, and the ways to write under its fence."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol, overload
from uuid import UUID

import psycopg
from psycopg import IsolationLevel

from faultline import interrupts, protocol
from faultline.bounded import answered_within, half_of, was_unanswered
from faultline.database import (
    AsyncConnection,
    AsyncPool,
    Connection,
    Pool,
    driver_errors,
    has_limits,
    is_read_only_refusal,
    is_standby,
    is_standby_async,
    run,
    run_async,
    run_together,
    run_together_async,
    sever,
    transaction_guarded,
)
from faultline.errors import InvalidInput, NotCommitted, StaleLease
from faultline.metrics import meter
from faultline.model import Claim
from faultline.payload import encode_json
from faultline.protocol import Statement

if TYPE_CHECKING:
    from faultline.tracing.attempt import AttemptTrace


class HeldLease(Protocol):
    """The worker's own view of a lease: how long it may still rely on it."""

    @property
    def lease_seconds(self) -> float: ...
    @property
    def is_lost(self) -> bool: ...
    def remaining_seconds(self) -> float: ...


class CommitPhase(Enum):
    UNCOMMITTED = auto()
    FENCED = auto()  # the ledger entry is in a transaction whose COMMIT has no answer (yet)
    COMMITTED = auto()


class Job:
    """One attempt at one job. Handlers receive it as their first argument."""

    _trace: AttemptTrace | None = None
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

        Your COMMIT then decides. If it raises StaleLease, the connection is cut.
        """
        text = None if result is None else encode_json(result, what="result")
        self._phase = CommitPhase.FENCED
        idle_seconds = self._lease.lease_seconds
        statement = protocol.commit(self._claim, result=text, idle_seconds=idle_seconds)
        return self._run(conn, statement, self._committing(conn, "entry"))

    @overload
    def assert_fence(self, conn: Connection) -> None: ...
    @overload
    def assert_fence(self, conn: AsyncConnection) -> Awaitable[None]: ...
    def assert_fence(self, conn: Connection | AsyncConnection) -> Awaitable[None] | None:
        """Raise StaleLease unless the lease holds, and keep others from taking the job over until
        this transaction ends. Above READ COMMITTED it must be the first statement."""
        return self._run(conn, self._fence(), self._heeding_refusal(conn))

    def _fence(self) -> Statement[None]:
        return protocol.assert_fence(self._claim, idle_seconds=self._lease.lease_seconds)

    def _run(
        self,
        conn: Connection | AsyncConnection,
        statement: Statement[None],
        guard: contextlib.AbstractContextManager[None],
    ) -> Awaitable[None] | None:
        if isinstance(conn, psycopg.AsyncConnection):
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
        heeding = self._heeding_refusal(conn)
        return heeding if self._trace is None else self._trace.committing(heeding, how)

    @contextlib.contextmanager
    def _heeding_refusal(self, conn: Connection | AsyncConnection) -> Iterator[None]:
        """A refused transaction must not be saved by rolling back to a savepoint, which is all that a
        user who swallows StaleLease could still do."""
        try:
            yield
        except StaleLease as error:
            self._refusal = error
            sever(conn)
            raise

    @contextlib.contextmanager
    def _controlling(self, conn: Connection | AsyncConnection) -> Iterator[None]:
        """Around the statements that open and close a block: bounded, and with errors of our own."""
        limit = half_of(self._lease.lease_seconds)
        with driver_errors(keep_conflicts=True), answered_within(conn, limit):
            yield

    def _take_up(self, conn: Connection | AsyncConnection) -> None:
        self._connections.add(conn)
        if self._is_cut:
            sever(conn)

    def _put_down(self, conn: Connection | AsyncConnection) -> None:
        self._connections.discard(conn)

    def _cut_connections(self) -> None:
        """End the attempt's sessions from outside, so that a thread waiting in one of them returns."""
        self._is_cut = True
        for conn in tuple(self._connections):
            sever(conn)


class FencedBlock:
    """A transaction that holds the job from its first statement to its COMMIT.

    On a connection of the worker's own it takes two round trips beside the user's statements: BEGIN
    goes with the first look at the fence, and the ledger entry with COMMIT.
    """

    def __init__(
        self,
        job: Job,
        *,
        completes_job: bool,
        conn: Connection | AsyncConnection | None,
        isolation: IsolationLevel | None,
    ) -> None:
        self._job = job
        self._completes_job = completes_job
        self._conn = conn
        self._isolation = isolation
        self._open: Any = None
        self._sent_at = 0.0

    def __enter__(self) -> Connection:
        own = copy.copy(
            self
        )  # no reference cycle: a block that an interrupt leaves behind ends at once
        self._open = own._block() if self._conn is None else own._borrowed(self._conn)
        try:
            conn: Connection = self._open.__enter__()
            return conn
        except BaseException:
            self._open.gen.close()
            raise

    def __exit__(self, *exc: Any) -> bool | None:
        swallowed: bool | None = self._open.__exit__(*exc)
        return swallowed

    async def __aenter__(self) -> AsyncConnection:
        self._open = self._block_async() if self._conn is None else self._borrowed_async(self._conn)
        conn: AsyncConnection = await self._open.__aenter__()
        return conn

    async def __aexit__(self, *exc: Any) -> bool | None:
        swallowed: bool | None = await self._open.__aexit__(*exc)
        return swallowed

    # ── on a connection from the worker's pool ───────────────────────────────────────────────────

    @contextlib.contextmanager
    def _block(self) -> Iterator[Connection]:
        job = self._job
        if job._async_pool is not None:
            raise InvalidInput("this handler is async: use `async with`")
        with interrupts.held() as hold:
            pool = job._pool()
            with driver_errors():
                conn = pool.getconn()
            try:
                job._take_up(conn)
                with job._heeding_refusal(conn), job._controlling(conn):
                    run_together(conn, *self._opening(conn))
                with transaction_guarded(conn), hold.released():
                    yield conn
                with job._committing(conn, self._how), job._controlling(conn):
                    run_together(conn, *self._closing(conn))
                self._finish()
            except BaseException as error:
                with contextlib.suppress(psycopg.Error):
                    conn.rollback()
                if was_unanswered(error) or (_met_read_only(conn, error) and is_standby(conn)):
                    job._is_blameless = True
                    conn.close()
                    pool.distrust()
                if not self._is_meant(error):
                    raise
            finally:
                job._put_down(conn)
                pool.putconn(conn)

    @contextlib.asynccontextmanager
    async def _block_async(self) -> AsyncIterator[AsyncConnection]:
        job = self._job
        pool = job._async_pool
        if pool is None:
            raise InvalidInput("this handler is a plain function: use `with`")
        with driver_errors():
            conn = await pool.getconn()
        try:
            job._take_up(conn)
            with job._heeding_refusal(conn), job._controlling(conn):
                await run_together_async(conn, *self._opening(conn))
            with transaction_guarded(conn):
                yield conn
            with job._committing(conn, self._how), job._controlling(conn):
                await run_together_async(conn, *self._closing(conn))
            self._finish()
        except BaseException as error:
            with contextlib.suppress(psycopg.Error):
                await conn.rollback()
            if was_unanswered(error) or (
                _met_read_only(conn, error) and await is_standby_async(conn)
            ):
                job._is_blameless = True
                await conn.close()
                await pool.distrust()
            if not self._is_meant(error):
                raise
        finally:
            job._put_down(conn)
            await pool.putconn(conn)

    def _opening(self, conn: Connection | AsyncConnection) -> tuple[Statement[None], ...]:
        level = self._isolation
        begin = protocol.begin(None if level is None else level.name.replace("_", " "))
        if has_limits(conn):
            return begin, protocol.lift_limits(), self._job._fence(), protocol.restore_limits()
        return begin, self._job._fence()

    def _closing(self, conn: Connection | AsyncConnection) -> tuple[Statement[None], ...]:
        self._sent_at = time.monotonic()
        seal = (self._seal(),) if self._completes_job else ()
        lift = (protocol.lift_limits(),) if has_limits(conn) else ()
        return *lift, *seal, protocol.commit_transaction()

    @property
    def _how(self) -> str:
        return "transaction" if self._completes_job else "step"

    def _is_meant(self, error: BaseException) -> bool:
        """Whether it is the driver's polite way of asking for a rollback, and may be granted."""
        if isinstance(error, psycopg.Rollback) and self._completes_job:
            raise NotCommitted("the job's own transaction was rolled back") from None
        return isinstance(error, psycopg.Rollback)

    # ── on a connection of the user's ────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def _borrowed(self, conn: Connection | AsyncConnection) -> Iterator[Connection]:
        if not isinstance(conn, psycopg.Connection):
            raise InvalidInput("this connection is async: use `async with`")
        job = self._job
        job._take_up(conn)
        try:
            with conn.transaction():
                job.assert_fence(conn)
                yield conn
        finally:
            job._put_down(conn)

    @contextlib.asynccontextmanager
    async def _borrowed_async(
        self, conn: Connection | AsyncConnection
    ) -> AsyncIterator[AsyncConnection]:
        if not isinstance(conn, psycopg.AsyncConnection):
            raise InvalidInput("this connection is not async: use `with`")
        job = self._job
        job._take_up(conn)
        try:
            async with conn.transaction():
                await job.assert_fence(conn)
                yield conn
        finally:
            job._put_down(conn)

    def _seal(self) -> Statement[None]:
        result = self._job.result
        text = None if result is None else encode_json(result, what="result")
        self._job._phase = CommitPhase.FENCED
        return protocol.commit(self._job._claim, result=text)

    def _finish(self) -> None:
        if self._completes_job:
            self._job._phase = CommitPhase.COMMITTED
            meter.current.committed(time.monotonic() - self._sent_at)


def _met_read_only(conn: Connection | AsyncConnection, error: BaseException) -> bool:
    """Whether the server refused a write, here or in a statement whose error the handler swallowed.

    It may be a standby now, or the handler asked for a transaction that only reads.
    """
    refused = getattr(conn, "was_read_only", False)
    return refused or is_read_only_refusal(error) or is_read_only_refusal(error.__cause__)
