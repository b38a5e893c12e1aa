"""Wakes the claim loop on notifications. Without them the worker still polls.

The session that claims listens too, so a worker needs no connection for it. Losing that session loses
notifications; the worker claims again with the next one.
"""

from __future__ import annotations

from collections.abc import Callable

from faultline.events import Event, emit
from faultline.postgres.sessions import AsyncConnection, run_async
from faultline.statements.protocol import CHANNEL
from faultline.statements.session_settings import Session
from faultline.statements.workers import (
    REGISTRATION,
    call_of,
    is_drain_requested,
    later_look,
    listen_as,
)
from faultline.workers.background import Wakeup
from faultline.workers.heartbeat import Heartbeat
from faultline.workers.idleness import Idleness


class Listener:
    """Wakes the claim loop for its queues, and the heartbeat for calls to this worker."""

    def __init__(
        self,
        is_served: Callable[[str], bool],
        worker_id: str,
        *,
        wakeup: Wakeup,
        heartbeat: Heartbeat,
        idleness: Idleness,
        on_registration: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_registration` is called when a worker has registered."""
        self._is_served = is_served
        self._worker_id = worker_id
        self._call = call_of(worker_id)
        self._idleness = idleness
        self._wakeup = wakeup
        self._on_registration = on_registration
        self._heartbeat = heartbeat
        self._has_reported_pooler = False

    async def listen(self, conn: AsyncConnection, session: Session) -> None:
        """Listen on a new connection of the session that claims."""
        if session.is_pooled:
            self._idleness.listen(is_listening=False)
            if not self._has_reported_pooler:
                self._has_reported_pooler = True
                emit(Event.DEGRADED, reason="a pooler is in between: polling instead of LISTEN")
            return
        await conn.execute(f"LISTEN {CHANNEL}")
        await run_async(conn, listen_as(self._worker_id))
        self._idleness.listen(is_listening=True)
        self._wakeup.set()  # jobs may have been notified before it listened
        if await run_async(conn, is_drain_requested(self._worker_id)):
            self._heartbeat.beat_now()

    def hear(self, channel: str, payload: str) -> None:
        """Act on a notification."""
        if channel != CHANNEL:  # its own
            self._is_served(payload)  # a new queue makes it look
            self._wakeup.notified(payload)
        elif payload == self._call:
            self._heartbeat.beat_now()
        elif payload == REGISTRATION:
            self._on_registration()
        elif (call := later_look(payload)) is not None:
            if self._is_served(call.queue):
                self._wakeup.look_in(call.seconds)
        elif self._is_served(payload):
            self._wakeup.set()

    def lost(self) -> None:
        """The session has ended: claim now, which opens another one."""
        self._wakeup.set()
