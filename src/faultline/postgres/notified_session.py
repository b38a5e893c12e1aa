"""A session that runs statements, and receives notifications between them.

PostgreSQL sends notifications to a session that runs no statement. So one connection serves both: while a
statement runs the driver reads the socket, and otherwise the event loop watches it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

from faultline.metrics import meter
from faultline.postgres.reconnecting import OnConnect, ReconnectingSession
from faultline.postgres.sessions import AsyncConnection
from faultline.statements.session_settings import Session
from faultline.statements.statement import Statement

T = TypeVar("T")
OnNotify = Callable[[str, str], None]  # called with the channel and the payload


class NotifiedSession(ReconnectingSession):
    """Calls `on_notify` for each notification, and `on_lost` if the idle session ends."""

    def __init__(
        self,
        url: str,
        *,
        on_notify: OnNotify,
        on_lost: Callable[[], None],
        on_connect: OnConnect | None = None,
        **options: Any,
    ) -> None:
        super().__init__(url, on_connect=self._prepare, **options)
        self._then = on_connect
        self._on_notify = on_notify
        self._on_lost = on_lost
        self._running = 0  # statements
        self._watched: tuple[asyncio.AbstractEventLoop, int] | None = None  # its loop and socket

    async def _prepare(self, conn: AsyncConnection, session: Session) -> None:
        conn.add_notify_handler(lambda sent: self._on_notify(sent.channel, sent.payload))
        if self._then is not None:
            await self._then(conn, session)

    async def run(self, statement: Statement[T]) -> T:
        self._running += 1
        self._ignore()  # the driver watches the socket itself
        try:
            return await super().run(statement)
        finally:
            self._running -= 1
            self._watch()

    async def drop(self) -> None:
        self._ignore()
        await super().drop()

    def _watch(self) -> None:
        conn = self._conn
        if self._running or conn is None or conn.closed:
            return
        try:
            self._deliver(conn)  # the driver may have read more than the answer
            self._watched = loop, fileno = asyncio.get_running_loop(), conn.fileno()
        except psycopg.Error:  # the next statement finds it closed, and connects again
            return
        loop.add_reader(fileno, self._readable)

    def _ignore(self) -> None:
        if self._watched is not None:
            (loop, fileno), self._watched = self._watched, None
            if not loop.is_closed():
                loop.remove_reader(fileno)

    def _readable(self) -> None:
        conn = self._conn
        assert conn is not None  # noqa: S101 - `drop` ends the watch
        try:
            conn.pgconn.consume_input()
            self._deliver(conn)
        except psycopg.Error as error:  # the next statement finds it closed, and connects again
            meter.current.database_error(error)
            self._ignore()
            self._on_lost()

    def _deliver(self, conn: AsyncConnection) -> None:
        while sent := conn.pgconn.notifies():
            self._on_notify(sent.relname.decode(), sent.extra.decode())
