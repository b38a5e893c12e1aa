"""Wakes the worker when somebody notifies. Hearing nothing is normal: the worker polls as well."""

from __future__ import annotations

from collections.abc import Callable, Collection

import psycopg

from faultline.database import AsyncConnection, Session
from faultline.errors import FaultlineError
from faultline.events import Event, emit
from faultline.link import Link, heed_cancellation, is_transient
from faultline.protocol import CHANNEL

_ROUND_SECONDS = 30.0


class Listener:
    def __init__(
        self, make_link: Callable[..., Link], queues: Collection[str], wake: Callable[[], None]
    ) -> None:
        self._link = make_link("listener", on_connect=self._listen)
        self._queues = frozenset(queues)
        self._wake = wake
        self._is_deaf = False

    async def run(self) -> None:
        while not self._is_deaf:
            try:
                conn = await self._link.connection()
                async for notification in conn.notifies(timeout=_ROUND_SECONDS):
                    if notification.payload in self._queues:
                        self._wake()
            except (FaultlineError, psycopg.Error) as error:
                heed_cancellation(error)
                if not is_transient(error):
                    raise
                await self._link.drop()
                await self._link.pause(error)

    async def _listen(self, conn: AsyncConnection, session: Session) -> None:
        if session.is_pooled:
            self._is_deaf = True
            emit(Event.DEGRADED, reason="a pooler is in between: polling instead of LISTEN")
            return
        await conn.execute(f"LISTEN {CHANNEL}")
        self._wake()  # whatever was notified while nobody listened

    async def close(self) -> None:
        await self._link.close()
