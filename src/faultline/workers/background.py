"""Coroutines that run beside the attempts, such as outcome writes and releases."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any


class BackgroundTasks:
    """Keeps each task until it ends, and wakes the claim loop then."""

    def __init__(self, wakeup: Wakeup) -> None:
        self._wakeup = wakeup
        self.pending: set[asyncio.Task[None]] = set()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self.pending.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.pending.discard(task)
        self._wakeup.set()
        report_error(task)


def report_error(task: asyncio.Task[None]) -> None:
    """Pass an unexpected error to the exception handler of the event loop."""
    if not task.cancelled() and (error := task.exception()) is not None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": "an attempt ended in an error of the worker's own", "exception": error}
        )


class Wakeup:
    """An event of the worker's loop that can also be set after a delay."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.is_full_look_due = False  # jobs became due that lie before the claim cursor
        self._notified: list[str] = []

    def set(self) -> None:
        self._event.set()

    def set_in(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds + 0.001, self._event.set)

    def look_in(self, seconds: float) -> None:
        """Wake the claim loop then, to look for jobs from the beginning of its queues."""

        def look() -> None:
            self.is_full_look_due = True
            self._event.set()

        asyncio.get_running_loop().call_later(seconds, look)

    def notified(self, queue: str) -> None:
        """A job of this queue became due, and no other worker was told."""
        self._notified.append(queue)
        self._event.set()

    def take_notified(self) -> list[str]:
        notified, self._notified = self._notified, []
        return notified

    def clear(self) -> None:
        self._event.clear()

    async def wait(self, timeout_seconds: float) -> None:
        """Return when the event is set or the time is over."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), timeout_seconds)
