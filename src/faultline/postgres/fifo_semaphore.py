"""FIFO semaphores: one for threads, one for an event loop.

A caller keeps its position for as long as it waits.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque

from faultline import interrupts

# How soon a waiting thread notices an interrupt.
_LOOK_SECONDS = 0.5


class FifoSemaphore:
    def __init__(self, places: int) -> None:
        self._free = places
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, timeout_seconds: float) -> bool:
        """Wait for a place; False after the timeout. A caller that got one must `leave`.

        The caller holds interrupts back (`interrupts.held`): an interrupt between two lines here would
        lose a place. An interrupt that arrives while the thread waits is delivered here.
        """
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return True
            turn = threading.Event()
            self._waiting.append(turn)
        deadline = time.monotonic() + timeout_seconds
        try:
            while (left := deadline - time.monotonic()) > 0:
                if turn.wait(min(left, _LOOK_SECONDS)):
                    return True
                interrupts.deliver()
        except BaseException:
            if not self._withdraw(turn):
                self.leave()  # it got a place at the last moment and does not need it
            raise
        return not self._withdraw(turn)

    def leave(self) -> None:
        """Free the place, for the caller that has waited longest."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._free += 1

    def _withdraw(self, turn: threading.Event) -> bool:
        with self._lock:
            if turn.is_set():
                return False
            self._waiting.remove(turn)
            return True


class AsyncFifoSemaphore:
    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    async def enter(self, timeout_seconds: float) -> bool:
        if self._free > 0:
            self._free -= 1
            return True
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await asyncio.wait({turn}, timeout=timeout_seconds)
        except BaseException:
            if not self._withdraw(turn):
                self.leave()
            raise
        return not self._withdraw(turn)

    def leave(self) -> None:
        if self._waiting:
            self._waiting.popleft().set_result(None)
        else:
            self._free += 1

    def _withdraw(self, turn: asyncio.Future[None]) -> bool:
        if turn.done():
            return False
        self._waiting.remove(turn)
        return True
