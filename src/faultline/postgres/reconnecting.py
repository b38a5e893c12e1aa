"""A session that reconnects with backoff and bounds each statement's time."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psycopg

from faultline.errors import DatabaseUnavailable, FaultlineError, ServerChanged
from faultline.metrics import meter
from faultline.postgres.answer_limit import ANSWER_SECONDS, AnswerLimit
from faultline.postgres.errors import is_connection_lost
from faultline.postgres.outage import outage_of
from faultline.postgres.sessions import IN_RECOVERY, AsyncConnection, open_session_async, run_async
from faultline.postgres.url import redact
from faultline.statements.session_settings import Session
from faultline.statements.statement import Statement
from faultline.steady import steady_now

T = TypeVar("T")
OnConnect = Callable[[AsyncConnection, Session], Awaitable[None]]

SHORTEST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 5.0


def is_transient(error: BaseException) -> bool:
    """Whether to wait and retry.

    The server is away, full, busy, starting up, a standby, or restored and not yet released for use.
    """
    sqlstate = getattr(error, "sqlstate", None) or ""
    if sqlstate.startswith("54"):  # a limit of the server: the same statement would fail again
        return False
    if isinstance(error, DatabaseUnavailable | psycopg.OperationalError | psycopg.InterfaceError):
        return True
    if isinstance(error, ServerChanged):
        return True
    return isinstance(error, psycopg.Error) and error.sqlstate == "25006"


def is_worth_waiting(error: BaseException) -> bool:
    """Whether a process that has never reached its database waits for it.

    It does not if the server answered that it has no such database or account, or refuses the account.
    """
    needs_correction = isinstance(error, DatabaseUnavailable) and error.needs_correction
    return is_transient(error) and not needs_correction


def raise_if_cancelled(error: BaseException) -> None:
    """Raise a cancellation that `error` has replaced, if there was one.

    The driver answers a cancellation by ending its query, and when that fails, only that failure is
    raised. Loops that run for ever call this function.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return  # no event loop runs
    if task is not None and task.cancelling():
        raise asyncio.CancelledError from error


class Backoff:
    """Pauses that grow, with a random part, so that clients do not retry together."""

    def __init__(
        self, shortest: float = SHORTEST_PAUSE_SECONDS, longest: float = LONGEST_PAUSE_SECONDS
    ) -> None:
        self._shortest, self._longest = shortest, longest
        self._failures = 0

    def reset(self) -> None:
        self._failures = 0

    def next_pause(self) -> float:
        self._failures += 1
        longest = min(self._longest, self._shortest * 2 ** min(self._failures, 16))
        return random.uniform(longest / 2, longest)  # noqa: S311 - spread, not secrecy


class ReconnectingSession:
    """Runs each statement within `answer_seconds`, else closes the connection."""

    def __init__(
        self,
        url: str,
        *,
        purpose: str,
        on_connect: OnConnect | None = None,
        needs_primary: bool = True,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._url = url
        self.purpose = purpose
        self._on_connect = on_connect
        self._needs_primary = needs_primary
        self._answer_limit = AnswerLimit(answer_seconds)
        self._conn: AsyncConnection | None = None
        self._opening = asyncio.Lock()
        self._backoff = Backoff()
        self._outage = outage_of(url)
        self._worked_at: float | None = None  # when this connection was opened, or answered last
        self._was_refused = False  # refused by a server that was there: reaching it is not enough
        self._was_open = False
        self.restored_at: float | None = None  # when a connection replaced one that was lost

    async def connection(self) -> AsyncConnection:
        """The open connection. Raises DatabaseUnavailable."""
        async with self._opening:
            if self._conn is None or self._conn.closed:
                try:
                    self._conn = await self._open()
                except Exception as error:
                    self._worked_at = None
                    self._answer_limit.note(error)
                    meter.current.database_error(error)
                    raise
                if self._was_open:
                    meter.current.reconnected()
                    self.restored_at = steady_now()
                self._was_open = True
                if not self._was_refused:
                    self._backoff.reset()
                    self._outage.recover(self.purpose)
                self._worked_at = steady_now()  # after the outage that it may have ended
            return self._conn

    async def _open(self) -> AsyncConnection:
        conn, session = await open_session_async(
            self._url,
            application_name=f"faultline {self.purpose}",
            answer_seconds=self._answer_limit.seconds,
            needs_primary=self._needs_primary,
        )
        try:
            if self._needs_primary and session.is_standby:
                raise DatabaseUnavailable(
                    f"{redact(self._url)} is a standby, and only reads: waiting until it is promoted",
                    hint="name the primary; with several hosts in the URL it is found by itself",
                )
            if self._on_connect is not None:
                await self._on_connect(conn, session)
        except BaseException:
            await conn.close()
            raise
        return conn

    async def run(self, statement: Statement[T]) -> T:
        meter.current.call_started(self.purpose)
        try:
            conn = await self.connection()
            try:
                answer = await run_async(conn, statement)
            except Exception as error:
                self._answer_limit.note(error)
                meter.current.database_error(error)
                if is_transient(error) and not isinstance(error, ServerChanged):
                    await self.drop()
                raise
            self.answered()
            return answer
        finally:
            meter.current.call_ended(self.purpose)

    async def pause(self, error: BaseException, *, stop: asyncio.Event | None = None) -> None:
        """Wait before a retry after a transient `error`, or until the outage ends."""
        self._was_refused = not (
            isinstance(error, DatabaseUnavailable) or is_connection_lost(error)
        )
        loop = asyncio.get_running_loop()
        is_over: asyncio.Future[None] = loop.create_future()
        stopped = None if stop is None else asyncio.create_task(stop.wait())

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(_resolve, is_over)

        # before the pause, or an end right after the failure would be missed
        self._outage.add_waiting(wake)
        try:
            self._outage.fail(self.purpose, error, worked_at=self._worked_at)
            waits: set[asyncio.Future[Any]] = {is_over} if stopped is None else {is_over, stopped}
            pause = self._backoff.next_pause()
            await asyncio.wait(waits, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            if is_over.done():
                self._backoff.reset()
        finally:
            self._outage.remove_waiting(wake)
            if stopped is not None:
                stopped.cancel()

    async def was_lost_since(self, moment: float) -> bool:
        """Whether this session was lost since `moment` (steady clock); asks the server."""
        try:
            if await self.run(IN_RECOVERY):
                return True
        except (FaultlineError, psycopg.Error) as error:
            if is_transient(error):
                self._outage.fail(self.purpose, error, worked_at=self._worked_at)
                return True
        return self.restored_at is not None and self.restored_at >= moment

    def answered(self) -> None:
        """Record an answer, for callers that use the connection itself."""
        self._backoff.reset()
        self._answer_limit.reset()
        self._was_refused = False
        self._outage.recover(self.purpose)
        self._worked_at = steady_now()

    async def drop(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            with contextlib.suppress(psycopg.Error):
                await conn.close()

    async def close(self) -> None:
        await self.drop()
        self._outage.withdraw(self.purpose)
        self._was_open = False  # a new connection does not replace a lost one


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
