"""A session that comes back: when it is lost, the next call opens a new one, with backoff and jitter."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import psycopg

from faultline.database import (
    AsyncConnection,
    Session,
    is_connection_lost,
    open_session_async,
    redact,
    run_async,
)
from faultline.errors import DatabaseUnavailable, ServerChanged
from faultline.events import Event, emit
from faultline.metrics import meter
from faultline.protocol import Statement

T = TypeVar("T")
OnConnect = Callable[[AsyncConnection, Session], Awaitable[None]]

SHORTEST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 5.0


def is_transient(error: BaseException) -> bool:
    """Whether waiting and trying again is the right answer: the server is away, full, busy, starting
    up, a standby that is not (or no longer) to be written to, or restored and not yet said to go on."""
    sqlstate = getattr(error, "sqlstate", None) or ""
    if sqlstate.startswith("54"):  # a limit of the server's: sending the same again meets it again
        return False
    if isinstance(error, DatabaseUnavailable | psycopg.OperationalError | psycopg.InterfaceError):
        return True
    if isinstance(error, ServerChanged):
        return True
    return isinstance(error, psycopg.Error) and error.sqlstate == "25006"


def heed_cancellation(error: BaseException) -> None:
    """Raise the cancellation that `error` has taken the place of, if there was one: the driver answers a
    cancellation by ending its query, and when that fails, the failure is all that is raised. For loops
    that would go on for ever."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return  # no event loop: whoever steps through the coroutine by hand does not cancel it
    if task is not None and task.cancelling():
        raise asyncio.CancelledError from error


class Backoff:
    """Pauses that grow from short to long, each drawn at random so that a crowd spreads out."""

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


class Link:
    def __init__(
        self,
        url: str,
        *,
        purpose: str,
        on_connect: OnConnect | None = None,
        needs_primary: bool = True,
    ) -> None:
        self._url = url
        self.purpose = purpose
        self._on_connect = on_connect
        self._needs_primary = needs_primary
        self._conn: AsyncConnection | None = None
        self._opening = asyncio.Lock()
        self._backoff = Backoff()
        self._away_since: float | None = None
        self._was_refused = (
            False  # by a server that was there: that it can be reached says nothing yet
        )
        self._was_open = False

    async def connection(self) -> AsyncConnection:
        """The live connection, or DatabaseUnavailable."""
        async with self._opening:
            if self._conn is None or self._conn.closed:
                try:
                    self._conn = await self._open()
                except Exception as error:
                    meter.current.database_error(error)
                    raise
                if self._was_open:
                    meter.current.reconnected()
                self._was_open = True
                if not self._was_refused:
                    self._came_back()
            return self._conn

    async def _open(self) -> AsyncConnection:
        conn, session = await open_session_async(
            self._url, application_name=f"faultline {self.purpose}"
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
        meter.current.talk_begins(self.purpose)
        try:
            conn = await self.connection()
            try:
                answer = await run_async(conn, statement)
            except Exception as error:
                meter.current.database_error(error)
                if is_transient(error) and not isinstance(error, ServerChanged):
                    await self.drop()
                raise
            self.answered()
            return answer
        finally:
            meter.current.talk_ends(self.purpose)

    async def pause(self, error: BaseException, *, stop: asyncio.Event | None = None) -> None:
        """Wait before trying again after a transient `error`; say once that the database is away."""
        self._was_refused = not (
            isinstance(error, DatabaseUnavailable) or is_connection_lost(error)
        )
        if self._away_since is None:
            self._away_since = time.monotonic()
            emit(
                Event.DATABASE_UNAVAILABLE, purpose=self.purpose, error=" ".join(str(error).split())
            )
        pause = self._backoff.next_pause()
        if stop is None:
            await asyncio.sleep(pause)
        else:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)

    def answered(self) -> None:
        """For whoever talks on the connection itself: the server has done what it was asked."""
        if self._away_since is not None:
            self._came_back()

    def _came_back(self) -> None:
        self._backoff.reset()
        self._was_refused = False
        if self._away_since is not None:
            seconds = round(time.monotonic() - self._away_since, 3)
            emit(Event.DATABASE_BACK, purpose=self.purpose, away_seconds=seconds)
            self._away_since = None

    async def drop(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            with contextlib.suppress(psycopg.Error):
                await conn.close()

    async def close(self) -> None:
        await self.drop()
        self._was_open = False  # if it is opened again, it is not because it was lost
