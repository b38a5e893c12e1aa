"""The same application, with heartbeats on the event loop, not in a thread.

Importing this module removes that guard, so only worker processes may import it: a test that did would
weaken every test after it.
"""

from __future__ import annotations

import asyncio

from faultline.workers.heartbeat import Heartbeat
from tests.failure_modes.apps import app
from tests.waiting import idle

__all__ = ["app"]

_tasks: set[asyncio.Task[None]] = set()


def start(self: Heartbeat, *, lock_key: int) -> None:
    async def beat_in_the_loop() -> None:
        while not self._stopping:
            self._beat()
            await idle(self._settings.heartbeat_seconds)

    self._lock_key = lock_key
    _tasks.add(asyncio.get_running_loop().create_task(beat_in_the_loop()))


Heartbeat.start = start  # type: ignore[method-assign]
