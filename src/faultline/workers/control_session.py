"""The session of a worker that registers it, claims its jobs, and listens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from typing import Any, TypeVar

from faultline.postgres.reconnecting import ReconnectingSession
from faultline.postgres.sessions import AsyncConnection, ServerAddress, server_address_of
from faultline.statements.session_settings import Session
from faultline.statements.statement import Statement
from faultline.workers.attempt import Attempt
from faultline.workers.bounded_calls import BoundedCalls, NoReply
from faultline.workers.handler_resources import HandlerResources
from faultline.workers.listener import Listener
from faultline.workers.registration import Registration
from faultline.workers.unclaimable_jobs import log_unclaimable_jobs

T = TypeVar("T")

# How long a stopping worker waits for the answer to a claim that it has already sent.
_LAST_CALL_SECONDS = 1.0


class ControlSession:
    """Registers the worker with every new connection.

    If a stopping worker gets no answer to a call, the call may have taken effect. Its session is not used
    any more, and the next session reads from the registry which leases the worker holds.
    """

    def __init__(
        self,
        make_session: Callable[..., ReconnectingSession],
        registration: Registration,
        calls: BoundedCalls,
        listener: Listener,
        *,
        resources: HandlerResources,
        attempts: Collection[Attempt],
    ) -> None:
        self._make_session = make_session
        self._registration = registration
        self._calls = calls
        self._listener = listener
        self._resources = resources
        self._attempts = attempts
        self._server: ServerAddress | None = None  # of the current session, or of the last one
        self._session = make_session(purpose="worker", on_connect=self._register)
        self._unanswered: list[ReconnectingSession] = []

    @property
    def has_unanswered_calls(self) -> bool:
        return bool(self._unanswered)

    async def _register(self, conn: AsyncConnection, session: Session) -> None:
        """Register, and end the handlers' sessions to a server that was left."""
        log_unclaimable_jobs(conn)
        await self._registration.register(conn, session)
        await self._listener.listen(conn, session)
        left, self._server = self._server, server_address_of(conn)
        if left is not None and left != self._server:
            await self._resources.leave(left)
            for attempt in tuple(self._attempts):
                attempt.transactions.sever_from(left)

    async def connect(self) -> None:
        await self._unless_stopped(self._session.connection())

    async def run(self, statement: Statement[T]) -> T:
        """Raises NoReply if the worker stops before the server answers."""
        return await self._unless_stopped(self._session.run(statement))

    async def _unless_stopped(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            return await self._calls.unless_stopped(call, grace_seconds=_LAST_CALL_SECONDS)
        except NoReply:
            self._unanswered.append(self._session)
            self._session = self._make_session(purpose="worker", on_connect=self._register)
            raise

    async def pause(self, error: BaseException, **until: Any) -> None:
        await self._session.pause(error, **until)

    async def was_lost_since(self, moment: float) -> bool:
        return await self._session.was_lost_since(moment)

    async def update_queues(self) -> None:
        await self._registration.update_queues(self._session)

    async def mark_draining(self) -> None:
        await self._registration.mark_draining(self._session)

    async def deregister(self) -> None:
        await self._registration.remove(self._session)

    async def close(self) -> None:
        await self._session.close()

    async def close_unanswered(self) -> None:
        for session in self._unanswered:
            await session.close()
