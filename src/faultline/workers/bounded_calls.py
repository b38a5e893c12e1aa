"""Bounds how long a stopping worker waits for a database call.

A frozen or unreachable server may not answer for minutes, and does not answer the driver's cancel request
either. So a call without an answer is cancelled, and the worker does not wait for the cancellation to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_CLOSE_SECONDS = 1.0


class NoReply(Exception):
    """The worker stops, and the call got no answer. It may have taken effect."""


class BoundedCalls:
    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._stopped: asyncio.Task[bool] | None = None
        self._left: set[asyncio.Task[Any]] = set()

    async def unless_stopped(self, call: Coroutine[Any, Any, T], *, grace_seconds: float) -> T:
        """Return the result of a call; once the worker stops, wait `grace_seconds` for it."""
        if self._stopped is None:  # one task for all calls: there are hundreds of claims a second
            self._stopped = asyncio.create_task(self._stop.wait())
        task = asyncio.create_task(call)
        try:
            if not self._stopped.done():
                await asyncio.wait({task, self._stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await asyncio.wait({task}, timeout=grace_seconds)
        finally:
            if not task.done():
                self._leave(task)
        if not task.done():
            raise NoReply
        return task.result()

    async def within(self, seconds: float, call: Coroutine[Any, Any, None]) -> None:
        """Wait at most `seconds` for a call, then cancel it."""
        task = asyncio.create_task(call)
        try:
            await asyncio.wait({task}, timeout=seconds)
        finally:
            if not task.done():
                self._leave(task)
        if task.done():
            task.result()

    def _leave(self, task: asyncio.Task[Any]) -> None:
        self._left.add(task)
        task.add_done_callback(self._forget)
        task.cancel()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._left.discard(task)
        if not task.cancelled():
            task.exception()  # retrieve the exception, so that asyncio does not log it

    async def close(self) -> None:
        """Cancel again: after the first cancellation the driver waits for the server."""
        left = (*self._left, *([] if self._stopped is None else [self._stopped]))
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_CLOSE_SECONDS)
