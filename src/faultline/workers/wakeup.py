"""Wakes the claim loop before its next poll."""

from __future__ import annotations

import asyncio
import contextlib


class Wakeup:
    """An event of the worker's loop that can also be set after a delay."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    def set_in(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds + 0.001, self._event.set)

    def clear(self) -> None:
        self._event.clear()

    async def wait(self, timeout_seconds: float) -> None:
        """Return when the event is set or the time is over."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), timeout_seconds)
