"""The sessions that requests share: so many and no more, and no wait for one that has no end.

Not psycopg's pool, which opens connections on its own: while the server is out of reach its attempts
hang, and who comes when the server is back waits for those. Here a request opens what it needs itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from faultline.api.pulse import SEVERED_SECONDS, Pulse
from faultline.api.refusals import late, overloaded
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

# A place comes free sooner than this, or something is amiss.
_PROMPT_SECONDS = 0.25
_TRIES = 3
# Of a request's time: what may go by waiting for a lock, then what the server may work.
_LOCK_SHARE, _STATEMENT_SHARE = 0.5, 0.8


class Sessions:
    def __init__(self, url: str, pulse: Pulse, *, connections: int, seconds: float) -> None:
        self._url, self._pulse, self._seconds = url, pulse, seconds
        self._places = asyncio.Semaphore(connections)
        self._free: list[AsyncConnection] = []
        self._at_work: set[asyncio.Task[Any]] = set()
        self._in_use: dict[asyncio.Task[Any], AsyncConnection] = {}
        self._is_closed = False
        self._is_suspect = False  # the server froze or was demoted: so it is for idle sessions

    async def run(self, statement: Statement[T], *, deadline: float) -> T:
        return await self._within(deadline, lambda conn: run_async(conn, statement))

    async def run_together(
        self, statements: Sequence[Statement[Any]], *, deadline: float
    ) -> list[Any]:
        """All of them or none, in one transaction."""

        async def work(conn: AsyncConnection) -> list[Any]:
            async with conn.transaction():
                return [await run_async(conn, statement) for statement in statements]

        return await self._within(deadline, work)

    async def close(self) -> None:
        """What is still at work ends without an answer."""
        self._is_closed = True
        if self._at_work:
            for task in self._at_work:
                self._abandon(task)
            await asyncio.wait(self._at_work, timeout=SEVERED_SECONDS)
        while self._free:
            await self._free.pop().close()

    # ── one request ──────────────────────────────────────────────────────────────────────────────

    async def _within(self, deadline: float, work: Work[T]) -> T:
        """What the server rolled back because others were at the same rows is done again: that it was
        rolled back is certain."""
        for tries_left in reversed(range(_TRIES)):
            await self._take_place(deadline)
            try:
                return await self._bounded(deadline, work)
            except Exception as error:
                # A server that was demoted has done nothing either, and another one may be the primary.
                is_undone = is_serialization_conflict(error) or is_read_only_refusal(error)
                if not tries_left or not is_undone:
                    raise
        raise AssertionError("the last try returns or raises")

    async def _take_place(self, deadline: float) -> None:
        """Where they are all taken for long, the server may be away rather than busy: it is asked."""
        if await self._got_place(min(_PROMPT_SECONDS, _left(deadline))):
            return
        await self._pulse.feel(within_seconds=_left(deadline))
        if not await self._got_place(_left(deadline)):
            raise overloaded("all connections to the database are in use")

    async def _got_place(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._places.acquire()
        except TimeoutError:
            return False

    async def _bounded(self, deadline: float, work: Work[T]) -> T:
        """The work has a task of its own, which keeps the place until it has ended, however late."""
        task = asyncio.create_task(self._do(work))
        self._at_work.add(task)
        task.add_done_callback(self._ended)
        try:
            await asyncio.wait({task}, timeout=_left(deadline))
        finally:  # out of time, or this request was cancelled
            if not task.done():
                self._abandon(task)
        if not task.done():
            raise late()
        return task.result()

    def _abandon(self, task: asyncio.Task[Any]) -> None:
        """Not by cancelling it: the driver would ask the server to cancel too, and wait for that. One
        that is still connecting ends by the limits of connecting.

        A server that is alive would have ended the statement before: the idle sessions hang as well.
        """
        self._is_suspect = True
        if conn := self._in_use.get(task):
            sever(conn)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._at_work.discard(task)
        self._places.release()
        if not task.cancelled():
            task.exception()  # of one that was abandoned nobody else asks

    # ── its session ──────────────────────────────────────────────────────────────────────────────

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
        """The one used last; those whose server has said something since are as a rule at their end."""
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
        """With limits of the server's own, a little shorter than ours: its refusal says for certain that
        nothing was done. Not behind a pooler, where they would stay on a session that others use next."""
        try:
            conn, session = await open_session_async(
                self._url,
                application_name="faultline api",
                answer_seconds=self._seconds,
                needs_primary=True,
            )
        except DatabaseUnavailable as error:
            self._pulse.note_away(error)
            raise
        self._pulse.note_back()
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
