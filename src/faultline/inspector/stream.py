"""GET /api/stream: changes of the queue as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from faultline.inspector import responses
from faultline.inspector.broadcast import (
    Broadcast,
    StreamListener,
    TooManyFromAddress,
    TooManyListeners,
)
from faultline.inspector.services import Shared
from faultline.serving.client import address_of

RETRY_MILLISECONDS = 2_000
HEARTBEAT_SECONDS = 10.0
RETRY_AFTER_SECONDS = "10"
SEND_SECONDS = 10.0  # then the client is disconnected

router = APIRouter(prefix="/api")


@router.get("/stream")
async def stream(request: Request, shared: Shared) -> Response:
    address = address_of(request.scope, behind_proxy=shared.settings.behind_proxy)
    return EventStream(shared.broadcast, address)


class EventStream(Response):
    """Sends events until the client disconnects, is too slow, or the server stops."""

    def __init__(self, broadcast: Broadcast, address: str) -> None:
        super().__init__()
        self._broadcast, self._address = broadcast, address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._broadcast.listening(self._address) as listener:
                await self._serve(listener, receive, send)
        except TooManyFromAddress as full:
            refusal = responses.error(
                429,
                "too_many_streams_from_address",
                f"{full.limit} dashboards are open from this address",
                "close one, or poll /api/overview; --streams-per-address allows more",
                Retry_After=RETRY_AFTER_SECONDS,
            )
            await refusal(scope, receive, send)
        except TooManyListeners as full:
            refusal = responses.error(
                503,
                "too_many_streams",
                f"{full.limit} dashboards are open",
                "close one, or poll /api/overview; --max-streams allows more",
                Retry_After=RETRY_AFTER_SECONDS,
            )
            await refusal(scope, receive, send)

    async def _serve(self, listener: StreamListener, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(listener, send))
        disconnected = asyncio.create_task(_until_disconnected(receive))
        try:
            await asyncio.wait((sending, disconnected), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, disconnected):
                task.cancel()
            await asyncio.gather(sending, disconnected, return_exceptions=True)

    async def _send(self, listener: StreamListener, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"x-accel-buffering", b"no"),  # a proxy must not buffer live events
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        event: bytes | None = f"retry: {RETRY_MILLISECONDS}\n\n".encode()
        with contextlib.suppress(TimeoutError):
            while event is not None:
                async with asyncio.timeout(SEND_SECONDS):
                    await send({"type": "http.response.body", "body": event, "more_body": True})
                event = await _next(listener)
            async with asyncio.timeout(SEND_SECONDS):
                await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _next(listener: StreamListener) -> bytes | None:
    try:
        async with asyncio.timeout(HEARTBEAT_SECONDS):
            return await listener.next()
    except TimeoutError:
        return b": still here\n\n"


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
