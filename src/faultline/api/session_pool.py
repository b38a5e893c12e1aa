"""A bounded pool of database sessions; every wait has a deadline.

psycopg's pool opens connections in the background. While the server is unreachable these attempts hang, and
requests wait for them even after the server is back. Here each request opens its connection itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from faultline.api.api_errors import overloaded, timed_out
from faultline.api.database_check import SEVERED_SECONDS, DatabaseCheck
from faultline.errors import DatabaseUnavailable
from faultline.postgres.driver import TransactionStatus
from faultline.postgres.errors import is_read_only_refusal, is_serialization_conflict
from faultline.postgres.sessions import (
    AsyncConnection,
    has_pending_input,
    open_session_async,
    run_async,
    sever,
)
from faultline.statements.statement import Statement

T = TypeVar("T")
Work = Callable[[AsyncConnection], Awaitable[T]]

# A healthy pool has a free slot sooner than this.
_PROMPT_SECONDS = 0.25
_TRIES = 3
# Shares of a request's time: for waiting for a lock, and for a whole statement.
_LOCK_SHARE, _STATEMENT_SHARE = 0.5, 0.8


class SessionPool:
    def __init__(
        self, url: str, database: DatabaseCheck, *, connections: int, seconds: float
    ) -> None:
        self._url, self._database, self._seconds = url, database, seconds
        self._slots = asyncio.Semaphore(connections)
        self._free: list[AsyncConnection] = []
        self._running: set[asyncio.Task[Any]] = set()
        self._in_use: dict[asyncio.Task[Any], AsyncConnection] = {}
        self._is_closed = False
        self._is_suspect = False  # the server froze or was demoted: idle sessions are unusable

    async def run(self, statement: Statement[T], *, deadline: float) -> T:
        return await self._retried(deadline, lambda conn: run_async(conn, statement))

    async def run_together(
        self, statements: Sequence[Statement[Any]], *, deadline: float
    ) -> list[Any]:
        """Run them in one transaction."""

        async def work(conn: AsyncConnection) -> list[Any]:
            async with conn.transaction():
                return [await run_async(conn, statement) for statement in statements]

        return await self._retried(deadline, work)

    async def close(self) -> None:
        """Requests that are still running end without a result."""
        self._is_closed = True
        if self._running:
            for task in self._running:
                self._abandon(task)
            await asyncio.wait(self._running, timeout=SEVERED_SECONDS)
        while self._free:
            await self._free.pop().close()

    # ── one request ──────────────────────────────────────────────────────────────────────────────

    async def _retried(self, deadline: float, work: Work[T]) -> T:
        """Repeats work that PostgreSQL has rolled back: conflicts, writes on a standby."""
        for tries_left in reversed(range(_TRIES)):
            await self._acquire_slot(deadline)
            try:
                return await self._bounded(deadline, work)
            except Exception as error:
                # A demoted server has done nothing either; a new session may find the primary.
                is_undone = is_serialization_conflict(error) or is_read_only_refusal(error)
                if not tries_left or not is_undone:
                    raise
        raise AssertionError("the last try returns or raises")

    async def _acquire_slot(self, deadline: float) -> None:
        """If no slot is free for long, ping the server: it may be down rather than busy."""
        if await self._got_slot(min(_PROMPT_SECONDS, _left(deadline))):
            return
        await self._database.ping(within_seconds=_left(deadline))
        if not await self._got_slot(_left(deadline)):
            raise overloaded("all connections to the database are in use")

    async def _got_slot(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._slots.acquire()
        except TimeoutError:
            return False

    async def _bounded(self, deadline: float, work: Work[T]) -> T:
        """Runs the work in its own task, which keeps the slot until it ends."""
        task = asyncio.create_task(self._do(work))
        self._running.add(task)
        task.add_done_callback(self._ended)
        try:
            await asyncio.wait({task}, timeout=_left(deadline))
        finally:  # the deadline has passed, or this request was cancelled
            if not task.done():
                self._abandon(task)
        if not task.done():
            raise timed_out()
        return task.result()

    def _abandon(self, task: asyncio.Task[Any]) -> None:
        """Sever its connection. A task that still connects ends by the connection timeout.

        Cancelling the task would make the driver send a cancel request and wait for it. A live server would
        have ended the statement before by statement_timeout, so the idle sessions are suspect too.
        """
        self._is_suspect = True
        if conn := self._in_use.get(task):
            sever(conn)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        self._slots.release()
        if not task.cancelled():
            task.exception()  # asyncio would warn about that of an abandoned task

    # ── one session ──────────────────────────────────────────────────────────────────────────────

    async def _do(self, work: Work[T]) -> T:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        conn = await self._take_free() or await self._open()
        self._in_use[task] = conn
        try:
            return await work(conn)
        except BaseException as error:
            if is_read_only_refusal(error):
                self._is_suspect = True
                await conn.close()
            raise
        finally:
            del self._in_use[task]
            if self._is_closed or conn.info.transaction_status is not TransactionStatus.IDLE:
                await conn.close()
            else:
                self._free.append(conn)

    async def _take_free(self) -> AsyncConnection | None:
        """The session used last.

        One with pending input is usually ended by the server, so it is closed.
        """
        if self._is_suspect:
            self._is_suspect = False
            suspects, self._free = self._free, []
            for conn in suspects:
                await conn.close()
        while self._free:
            conn = self._free.pop()
            if not conn.closed and not has_pending_input(conn):
                return conn
            await conn.close()
        return None

    async def _open(self) -> AsyncConnection:
        """Sets the server's timeouts a little shorter than ours.

        Its timeout error proves that nothing was done.

        Not behind a pooler, where the settings would stay on a session that other clients use next.
        """
        try:
            conn, session = await open_session_async(
                self._url,
                application_name="faultline api",
                answer_seconds=self._seconds,
                needs_primary=True,
            )
        except DatabaseUnavailable as error:
            self._database.note_unavailable(error)
            raise
        self._database.note_available()
        if not session.is_pooled:
            milliseconds = self._seconds * 1000
            try:
                await conn.execute(
                    f"SET lock_timeout = {milliseconds * _LOCK_SHARE:.0f};"
                    f" SET statement_timeout = {milliseconds * _STATEMENT_SHARE:.0f}"
                )
            except BaseException:
                await conn.close()
                raise
        return conn


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.0)
