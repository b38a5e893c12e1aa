"""Notices that the server of a mounted application stops."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable

_POLL_SECONDS = 0.25


@contextlib.asynccontextmanager
async def before_server_stops(end: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """End responses that have no end of their own when uvicorn gets SIGTERM.

    uvicorn waits for all responses before it ends the lifespan, and tells no application about it. Its
    signal handler is a method of the server.
    """

    async def watch() -> None:
        while True:
            server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
            if getattr(server, "should_exit", False) is True:
                await end()
                return
            await asyncio.sleep(_POLL_SECONDS)

    watching = asyncio.create_task(watch(), name="faultline-server-stop")
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
