"""A job's whole transaction in one message: job.commit_with()."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from faultline import handler_interrupts
from faultline.attempt_transactions import AttemptTransactions
from faultline.errors import FaultlineError
from faultline.fenced_block import FencedBlock
from faultline.metrics import meter
from faultline.postgres.answer_limit import answered_within, was_unanswered
from faultline.postgres.driver import DriverError
from faultline.postgres.errors import driver_errors, is_read_only_refusal
from faultline.postgres.one_message import Write, send, send_async, was_refused
from faultline.postgres.sessions import (
    AsyncConnection,
    AsyncPool,
    Connection,
    Pool,
    is_standby,
    is_standby_async,
)

if TYPE_CHECKING:
    from faultline.job import Job


_WHAT = "job.commit_with()"


class CommitMessage:
    """Sends all of a job's transaction at once.

    PostgreSQL locks the job's row and checks the fence before the first write, as in a block, so a stale
    worker writes nothing. What differs is the unknown outcome: while the answer is missing, any part of the
    message may have been done, so the database is asked, as after a COMMIT without an answer.
    """

    def __init__(
        self,
        block: FencedBlock,
        attempt: AttemptTransactions,
        writes: Sequence[Write],
        *,
        pool: Callable[[], Pool],
        async_pool: AsyncPool | None,
    ) -> None:
        self._block = block
        self._attempt = attempt
        self._writes = writes
        self._pool = pool
        self._async_pool = async_pool

    def send(self) -> Awaitable[None]:
        """Send it now in a plain handler, and when it is awaited in an async one."""
        self._attempt.require_commit(_WHAT)  # even if an async handler forgets to await it
        if self._async_pool is not None:
            return self._send_async(self._async_pool)
        self._send()
        return _Done()

    def _send(self) -> None:
        attempt = self._attempt
        with handler_interrupts.held(), attempt.block(completes=True, what=_WHAT):
            pool = self._pool()
            with driver_errors():
                conn = pool.getconn()
            try:
                attempt.track(conn)
                with self._judged(conn), answered_within(conn, attempt.limit_seconds):
                    send(conn, *self._parts(conn))
                self._finish()
            except BaseException as error:
                with contextlib.suppress(DriverError), answered_within(conn, attempt.limit_seconds):
                    conn.rollback()
                if was_unanswered(error) or (_is_read_only(error) and is_standby(conn)):
                    attempt.server_failed = True
                    conn.close()
                    pool.distrust()
                raise
            finally:
                attempt.untrack(conn)
                pool.putconn(conn)

    async def _send_async(self, pool: AsyncPool) -> None:
        attempt = self._attempt
        with attempt.block(completes=True, what=_WHAT):
            with driver_errors():
                conn = await pool.getconn()
            try:
                attempt.track(conn)
                with self._judged(conn), answered_within(conn, attempt.limit_seconds):
                    await send_async(conn, *self._parts(conn))
                self._finish()
            except BaseException as error:
                with contextlib.suppress(DriverError), answered_within(conn, attempt.limit_seconds):
                    await conn.rollback()
                if was_unanswered(error) or (_is_read_only(error) and await is_standby_async(conn)):
                    attempt.server_failed = True
                    await conn.close()
                    await pool.distrust()
                raise
            finally:
                attempt.untrack(conn)
                await pool.putconn(conn)

    def _parts(self, conn: Connection | AsyncConnection) -> Any:
        self._sent_at = time.monotonic()
        return self._block.opening(conn), self._writes, self._block.closing(conn)

    @contextlib.contextmanager
    def _judged(self, conn: Connection | AsyncConnection) -> Iterator[None]:
        """After an error that the server has sent, nothing was committed."""
        try:
            with self._attempt.committing(conn, "transaction"):
                yield
        except FaultlineError:
            if was_refused(conn):
                self._attempt.note_refused()
            raise
        except DriverError:
            if was_refused(conn):
                self._attempt.note_refused()
            raise

    def _finish(self) -> None:
        self._attempt.note_committed()
        meter.current.committed(time.monotonic() - self._sent_at)


class _Done:
    """For a plain handler, which has nothing to await."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


def writes_of(statement: Any, params: Any, also: Sequence[Any]) -> list[Write]:
    """The first statement and the others.

    Each of `also` is a statement, or a pair of a statement and its parameters.
    """
    others = [Write(*each) if isinstance(each, tuple) else Write(each) for each in also]
    return [Write(statement, params), *others]


def send_apart(job: Job, writes: Sequence[Write], *, is_async: bool) -> Awaitable[None]:
    """Send the writes in a block.

    For an application whose hook prepares the connection of each transaction first.
    """

    async def run() -> None:
        async with job.transaction() as tx:
            for write in writes:
                await tx.execute(write.statement, write.params)

    if is_async:
        return run()
    with job.transaction() as tx:
        for write in writes:
            tx.execute(write.statement, write.params)
    return _Done()


def _is_read_only(error: BaseException) -> bool:
    return is_read_only_refusal(error) or is_read_only_refusal(error.__cause__)
