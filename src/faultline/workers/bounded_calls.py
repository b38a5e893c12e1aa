"""Round trips that a leaving worker does not wait for without end.

A server that is frozen, or out of reach, answers nothing for minutes, nor does it when the driver asks it
to cancel. So what is not answered in time is left behind: cancelled, and nobody waits for that either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_CLOSE_SECONDS = 1.0


class NoReply(Exception):
    """The worker was told to stop, and this talk did not come to its end. It may have taken effect."""


class BoundedCalls:
    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._stopped: asyncio.Task[bool] | None = None
        self._left: set[asyncio.Task[Any]] = set()

    async def unless_stopped(self, talk: Coroutine[Any, Any, T], *, grace_seconds: float) -> T:
        """Its result; when the worker is told to stop meanwhile, it has this long to come."""
        if self._stopped is None:  # one for all of them: claims come by the hundred
            self._stopped = asyncio.create_task(self._stop.wait())
        task = asyncio.create_task(talk)
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

    async def within(self, seconds: float, talk: Coroutine[Any, Any, None]) -> None:
        """Until it has ended, or the time is up."""
        task = asyncio.create_task(talk)
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
            task.exception()  # seen: it came too late to matter

    async def close(self) -> None:
        """The driver answers a first cancellation by asking the server; the second one ends that too."""
        left = (*self._left, *([] if self._stopped is None else [self._stopped]))
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_CLOSE_SECONDS)
