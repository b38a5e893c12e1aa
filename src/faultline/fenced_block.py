"""A block of job.transaction() or job.fenced() on a worker's connection."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from faultline import handler_interrupts
from faultline.attempt_transactions import AttemptTransactions
from faultline.errors import FaultlineError, InvalidInput, NotCommitted
from faultline.metrics import meter
from faultline.postgres.answer_limit import answered_within, was_unanswered
from faultline.postgres.driver import DriverError, IsolationLevel, Rollback
from faultline.postgres.errors import driver_errors, is_read_only_refusal
from faultline.postgres.handler_connection import (
    end,
    end_async,
    give_up,
    leaves_locks,
    leaves_statements,
    lend,
    lend_async,
)
from faultline.postgres.sessions import (
    AsyncConnection,
    AsyncPool,
    Connection,
    Pool,
    has_limits,
    is_standby,
    is_standby_async,
    run_together,
    run_together_async,
    settings_to_restore,
    sever,
)
from faultline.statements import transactions
from faultline.statements.statement import Statement

if TYPE_CHECKING:
    from faultline.batch import Batch
    from faultline.job import Job


# Called with the job and the connection of a block that has just opened; in a batch handler with the
# batch, which has the same `task` and `queue`.
PrepareTransaction = Callable[["Job", Any], Awaitable[None] | None]


class FencedBlock:
    """A transaction that holds the job from its first statement to its COMMIT.

    It takes two round trips beside the user's statements: BEGIN goes with the first check of the fence, and
    the ledger entry with COMMIT.
    """

    def __init__(
        self,
        job: Job | Batch[Any],
        transactions: AttemptTransactions,
        *,
        pool: Callable[[], Pool],
        async_pool: AsyncPool | None,
        prepare: PrepareTransaction | None,
        completes_job: bool,
        isolation: IsolationLevel | None,
    ) -> None:
        self._job = job
        self._transactions = transactions
        self._pool = pool
        self._async_pool = async_pool
        self._prepare_hook = prepare
        self._completes_job = completes_job
        self._isolation = isolation
        self._open: Any = None
        self._sent_at = 0.0

    def __enter__(self) -> Connection:
        # A copy: without a reference cycle, Python closes an interrupted block at once.
        own = copy.copy(self)
        self._open = own._pooled()
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
        self._open = self._pooled_async()
        conn: AsyncConnection = await self._open.__aenter__()
        return conn

    async def __aexit__(self, *exc: Any) -> bool | None:
        swallowed: bool | None = await self._open.__aexit__(*exc)
        return swallowed

    @contextlib.contextmanager
    def _pooled(self) -> Iterator[Connection]:
        attempt = self._transactions
        if self._async_pool is not None:
            raise InvalidInput("this handler is async: use `async with`")
        with handler_interrupts.held() as hold, attempt.block(completes=self._completes_job):
            pool = self._pool()
            with driver_errors():
                conn = pool.getconn()
            tx = None
            try:
                attempt.track(conn)
                with attempt.sever_on_stale(conn), attempt.bounded(conn):
                    run_together(conn, *self.opening(conn))
                tx = lend(conn)
                with hold.released():
                    self._prepare(tx)
                    yield tx
                end(tx)
                attempt.require_complete()
                with attempt.committing(conn, self._how), attempt.bounded(conn):
                    run_together(conn, *self.closing(conn))
                self._finish()
            except BaseException as error:
                lost = self._lost(error, give_up(tx) if tx is not None else None)
                if lost is not None:
                    sever(conn)  # the pool discards it
                    if lost is not error and isinstance(error, Exception):
                        raise lost from error
                    raise
                with contextlib.suppress(DriverError), answered_within(conn, attempt.limit_seconds):
                    conn.rollback()
                if was_unanswered(error) or (_met_read_only(tx, error) and is_standby(conn)):
                    attempt.server_failed = True
                    conn.close()
                    pool.distrust()
                if not self._is_rollback_request(error):
                    raise
            finally:
                attempt.untrack(conn)
                if leaves_statements(tx):
                    conn.close()
                elif leaves_locks(tx) and not conn.closed:
                    with contextlib.suppress(FaultlineError), attempt.bounded(conn):
                        run_together(conn, transactions.release_locks())
                pool.putconn(conn)

    @contextlib.asynccontextmanager
    async def _pooled_async(self) -> AsyncIterator[AsyncConnection]:
        attempt = self._transactions
        pool = self._async_pool
        if pool is None:
            raise InvalidInput("this handler is a plain function: use `with`")
        with attempt.block(completes=self._completes_job):
            with driver_errors():
                conn = await pool.getconn()
            tx = None
            try:
                attempt.track(conn)
                with attempt.sever_on_stale(conn), attempt.bounded(conn):
                    await run_together_async(conn, *self.opening(conn))
                tx = lend_async(conn)
                await self._prepare_async(tx)
                yield tx
                await end_async(tx)
                attempt.require_complete()
                with attempt.committing(conn, self._how), attempt.bounded(conn):
                    await run_together_async(conn, *self.closing(conn))
                self._finish()
            except BaseException as error:
                lost = self._lost(error, give_up(tx) if tx is not None else None)
                if lost is not None:
                    sever(conn)  # the pool discards it
                    if lost is not error and isinstance(error, Exception):
                        raise lost from error
                    raise
                with contextlib.suppress(DriverError), answered_within(conn, attempt.limit_seconds):
                    await conn.rollback()
                if was_unanswered(error) or (
                    _met_read_only(tx, error) and await is_standby_async(conn)
                ):
                    attempt.server_failed = True
                    await conn.close()
                    await pool.distrust()
                if not self._is_rollback_request(error):
                    raise
            finally:
                attempt.untrack(conn)
                if leaves_statements(tx):
                    await conn.close()
                elif leaves_locks(tx) and not conn.closed:
                    with contextlib.suppress(FaultlineError), attempt.bounded(conn):
                        await run_together_async(conn, transactions.release_locks())
                await pool.putconn(conn)

    def _prepare(self, tx: Connection) -> None:
        if (
            self._prepare_hook is not None
            and self._prepare_hook(cast("Job", self._job), tx) is not None
        ):
            raise InvalidInput(
                "prepare_transaction returned something, in a plain handler",
                hint="an async function cannot be awaited there: use one that does its work at once",
            )

    async def _prepare_async(self, tx: AsyncConnection) -> None:
        if self._prepare_hook is not None:
            awaited = self._prepare_hook(cast("Job", self._job), tx)
            if awaited is not None:
                await awaited

    def _lost(self, error: BaseException, lost: NotCommitted | None) -> NotCommitted | None:
        """Record why a block did not commit, even if the handler swallows the error."""
        if lost is not None:
            self._transactions.not_committed = lost
        elif self._completes_job and isinstance(error, NotCommitted):
            self._transactions.not_committed = error
        return lost

    def opening(self, conn: Connection | AsyncConnection) -> tuple[Statement[None], ...]:
        level = self._isolation
        begin = transactions.begin(None if level is None else level.name.replace("_", " "))
        opening = self._transactions.open_statement(completes=self._completes_job)
        settings = settings_to_restore(conn)
        reset = (transactions.reset_session(settings),) if settings else ()
        if has_limits(conn):
            lifted = transactions.lift_limits(), opening, transactions.restore_limits()
            return begin, *reset, *lifted
        return begin, *reset, opening

    def closing(self, conn: Connection | AsyncConnection) -> tuple[Statement[None], ...]:
        self._sent_at = time.monotonic()
        lift = (transactions.lift_limits(),) if has_limits(conn) else ()
        closing = self._transactions.close_statement(
            self._job.result, completes=self._completes_job
        )
        return transactions.reset_role(), *lift, closing, transactions.commit_transaction()

    @property
    def _how(self) -> str:
        return "transaction" if self._completes_job else "step"

    def _is_rollback_request(self, error: BaseException) -> bool:
        """Whether the driver's Rollback was raised in a block where it is allowed."""
        if isinstance(error, Rollback) and self._completes_job:
            raise NotCommitted("the job's own transaction was rolled back") from None
        return isinstance(error, Rollback)

    def _finish(self) -> None:
        if self._completes_job:
            self._transactions.note_committed()
            meter.current.committed(time.monotonic() - self._sent_at)


def _met_read_only(tx: Connection | AsyncConnection | None, error: BaseException) -> bool:
    """Whether the server refused a write, even if the handler swallowed the error.

    The server may be a standby now, or the handler wrote in a read-only transaction.
    """
    refused = getattr(tx, "was_read_only", False)
    return refused or is_read_only_refusal(error) or is_read_only_refusal(error.__cause__)
