"""Fenced blocks on a user's connection, of any library with an adapter."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from faultline.attempt_transactions import AttemptTransactions
from faultline.errors import FaultlineError, InvalidInput, NotCommitted
from faultline.metrics import meter
from faultline.model import CommitPhase
from faultline.postgres.errors import translated_library_errors
from faultline.statements.statement import Statement
from faultline.user_connections import AsyncUserConnection, SyncUserConnection, user_connection

if TYPE_CHECKING:
    from faultline.batch import Batch
    from faultline.job import Job

C = TypeVar("C")


class UserBlock(Generic[C]):
    """A block of job.transaction(conn) or job.fenced(conn)."""

    def __init__(
        self, job: Job | Batch[Any], attempt: AttemptTransactions, given: object, *, completes: bool
    ) -> None:
        self._job = job
        self._attempt = attempt
        self._conn = user_connection(given)
        self._completes = completes
        self._open: Any = None

    def __enter__(self) -> C:
        if isinstance(self._conn, AsyncUserConnection):
            raise InvalidInput("this connection is async: use `async with`")
        self._open = sync_block(self._job, self._attempt, self._conn, completes=self._completes)
        conn: C = self._open.__enter__()
        return conn

    def __exit__(self, *exc: Any) -> bool | None:
        swallowed: bool | None = self._open.__exit__(*exc)
        return swallowed

    async def __aenter__(self) -> C:
        if isinstance(self._conn, SyncUserConnection):
            raise InvalidInput("this connection is not async: use `with`")
        self._open = async_block(self._job, self._attempt, self._conn, completes=self._completes)
        conn: C = await self._open.__aenter__()
        return conn

    async def __aexit__(self, *exc: Any) -> bool | None:
        swallowed: bool | None = await self._open.__aexit__(*exc)
        return swallowed


class UserTransaction:
    """What Faultline sends in a transaction of the user's, and what it notes of it."""

    def __init__(
        self, job: Job | Batch[Any], attempt: AttemptTransactions, *, completes: bool
    ) -> None:
        self._job = job
        self._attempt = attempt
        self._completes = completes
        self._sent_at = 0.0

    def first(self, *, is_outermost: bool) -> Statement[None]:
        """The first statement. In a transaction of the user's the block is a savepoint."""
        attempt = self._attempt
        if is_outermost:
            return attempt.open_statement(completes=self._completes)
        if self._completes:
            raise InvalidInput(
                "job.transaction(conn) in a transaction that has begun: it would be a savepoint",
                hint="end that transaction first, or complete the job in it with job.commit(conn)",
            )
        return attempt.assert_statement()

    def last(self) -> Statement[None]:
        """The last statement before COMMIT: a job's ledger entry, or a step's end."""
        self._sent_at = time.monotonic()
        return self._attempt.close_statement(self._job.result, completes=self._completes)

    def committed(self) -> None:
        if self._completes:
            self._attempt.note_committed()
            meter.current.committed(time.monotonic() - self._sent_at)

    @property
    def how(self) -> str:
        return "transaction" if self._completes else "step"

    @contextlib.contextmanager
    def noting_refusals(self) -> Iterator[None]:
        """Around the whole block: record that PostgreSQL has refused the COMMIT."""
        try:
            with translated_library_errors():
                yield
        except NotCommitted as error:
            if self._completes:
                self._attempt.not_committed = error
                self._attempt.phase = CommitPhase.UNCOMMITTED
            raise
        except FaultlineError:
            raise


@contextlib.contextmanager
def sync_block(
    job: Job | Batch[Any],
    attempt: AttemptTransactions,
    conn: SyncUserConnection,
    *,
    completes: bool,
) -> Iterator[Any]:
    block = UserTransaction(job, attempt, completes=completes)
    is_outermost = not conn.in_transaction
    first = block.first(is_outermost=is_outermost)
    attempt.track(conn)
    try:
        with block.noting_refusals(), attempt.block(completes=completes):
            with conn.transaction() as target:
                with attempt.sever_on_stale(conn):
                    conn.run(first)
                yield target
                attempt.require_complete()
                if is_outermost:
                    conn.flush()
                    with attempt.committing(conn, block.how):
                        conn.run(block.last())
            if is_outermost:
                block.committed()
    finally:
        attempt.untrack(conn)


@contextlib.asynccontextmanager
async def async_block(
    job: Job | Batch[Any],
    attempt: AttemptTransactions,
    conn: AsyncUserConnection,
    *,
    completes: bool,
) -> AsyncIterator[Any]:
    block = UserTransaction(job, attempt, completes=completes)
    is_outermost = not conn.in_transaction
    first = block.first(is_outermost=is_outermost)
    attempt.track(conn)
    try:
        with block.noting_refusals(), attempt.block(completes=completes):
            async with conn.transaction() as target:
                with attempt.sever_on_stale(conn):
                    await conn.run(first)
                yield target
                attempt.require_complete()
                if is_outermost:
                    await conn.flush()
                    with attempt.committing(conn, block.how):
                        await conn.run(block.last())
            if is_outermost:
                block.committed()
    finally:
        attempt.untrack(conn)
