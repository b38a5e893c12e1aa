"""Wakes the claim loop on notifications. Without them the worker still polls."""

from __future__ import annotations

from collections.abc import Callable

from faultline.errors import DatabaseUnavailable, FaultlineError
from faultline.events import Event, emit
from faultline.postgres.driver import DriverError
from faultline.postgres.reconnecting import ReconnectingSession, is_transient, raise_if_cancelled
from faultline.postgres.sessions import IN_RECOVERY, AsyncConnection, run_async
from faultline.statements.protocol import CHANNEL
from faultline.statements.session_settings import Session
from faultline.statements.workers import (
    call_of,
    is_drain_requested,
    later_look,
    listen_as,
)
from faultline.workers.background import Wakeup
from faultline.workers.heartbeat import Heartbeat
from faultline.workers.idleness import Idleness

# How often it checks that the server is there and is the primary: a standby and a frozen server send no
# notifications.
_ROUND_SECONDS = 10.0


class Listener:
    """Wakes the claim loop for its queues, and the heartbeat for calls to this worker."""

    def __init__(
        self,
        make_session: Callable[..., ReconnectingSession],
        is_served: Callable[[str], bool],
        worker_id: str,
        *,
        wakeup: Wakeup,
        heartbeat: Heartbeat,
        idleness: Idleness,
    ) -> None:
        self._session = make_session(purpose="listener", on_connect=self._listen)
        self._is_served = is_served
        self._worker_id = worker_id
        self._call = call_of(worker_id)
        self._idleness = idleness
        self._wakeup = wakeup
        self._heartbeat = heartbeat
        self._cannot_listen = False

    async def run(self) -> None:
        while True:
            try:
                conn = await self._session.connection()
                self._session.answered()
                if self._cannot_listen:
                    break
                async for notification in conn.notifies(timeout=_ROUND_SECONDS):
                    if notification.channel != CHANNEL:  # its own
                        self._is_served(notification.payload)  # a new queue makes it look
                        self._wakeup.notified(notification.payload)
                    elif notification.payload == self._call:
                        self._heartbeat.beat_now()
                    elif (call := later_look(notification.payload)) is not None:
                        if self._is_served(call.queue):
                            self._wakeup.look_in(call.seconds)
                    elif self._is_served(notification.payload):
                        self._wakeup.set()
                if await run_async(conn, IN_RECOVERY):
                    raise DatabaseUnavailable("the server was demoted: it is a standby now")
            except (FaultlineError, DriverError) as error:
                raise_if_cancelled(error)
                self._idleness.listen(is_listening=False)
                if not is_transient(error):
                    raise
                await self._session.drop()
                await self._session.pause(error)
        # Behind a pooler it does not listen, and in session mode it would occupy a server connection.
        await self._session.close()

    async def _listen(self, conn: AsyncConnection, session: Session) -> None:
        if session.is_pooled:
            self._cannot_listen = True
            emit(Event.DEGRADED, reason="a pooler is in between: polling instead of LISTEN")
            return
        await conn.execute(f"LISTEN {CHANNEL}")
        await run_async(conn, listen_as(self._worker_id))
        self._idleness.listen(is_listening=True)
        self._wakeup.set()  # jobs may have been notified before it listened
        if await run_async(conn, is_drain_requested(self._worker_id)):
            self._heartbeat.beat_now()

    async def close(self) -> None:
        await self._session.close()
