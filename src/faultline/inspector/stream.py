"""GET /api/stream: what changes, as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from faultline.inspector import answers
from faultline.inspector.broadcast import (
    Broadcast,
    Listener,
    TooManyFromAddress,
    TooManyListeners,
)
from faultline.inspector.services import Shared
from faultline.serving.client import address_of

RETRY_MILLISECONDS = 2_000
HEARTBEAT_SECONDS = 10.0
RETRY_AFTER_SECONDS = "10"
SEND_SECONDS = 10.0  # a client that takes nothing for this long is given up

router = APIRouter(prefix="/api")


@router.get("/stream")
async def stream(request: Request, shared: Shared) -> Response:
    address = address_of(request.scope, behind_proxy=shared.settings.behind_proxy)
    return EventStream(shared.broadcast, address)


class EventStream(Response):
    """Sends what a listener is told, until the client leaves, is too slow, or we stop."""

    def __init__(self, broadcast: Broadcast, address: str) -> None:
        super().__init__()
        self._broadcast, self._address = broadcast, address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._broadcast.listening(self._address) as listener:
                await self._serve(listener, receive, send)
        except TooManyFromAddress as full:
            refusal = answers.error(
                429,
                "too_many_streams_from_address",
                f"{full.limit} dashboards are open from this address",
                "close one, or poll /api/overview; --streams-per-address allows more",
                Retry_After=RETRY_AFTER_SECONDS,
            )
            await refusal(scope, receive, send)
        except TooManyListeners as full:
            refusal = answers.error(
                503,
                "too_many_streams",
                f"{full.limit} dashboards are open",
                "close one, or poll /api/overview; --max-streams allows more",
                Retry_After=RETRY_AFTER_SECONDS,
            )
            await refusal(scope, receive, send)

    async def _serve(self, listener: Listener, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(listener, send))
        leaving = asyncio.create_task(_until_left(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send(self, listener: Listener, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"x-accel-buffering", b"no"),  # for a proxy that would collect what is to be live
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        said: bytes | None = f"retry: {RETRY_MILLISECONDS}\n\n".encode()
        with contextlib.suppress(TimeoutError):
            while said is not None:
                async with asyncio.timeout(SEND_SECONDS):
                    await send({"type": "http.response.body", "body": said, "more_body": True})
                said = await _next(listener)
            async with asyncio.timeout(SEND_SECONDS):
                await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _next(listener: Listener) -> bytes | None:
    try:
        async with asyncio.timeout(HEARTBEAT_SECONDS):
            return await listener.next()
    except TimeoutError:
        return b": still here\n\n"


async def _until_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
