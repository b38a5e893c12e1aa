"""The same application in a worker whose heartbeats share the event loop with its handlers.

The guard that is missing is the heartbeat's own thread. Importing this module takes it out, so it is
for worker processes alone: a test that imported it would weaken every test after it.
"""

from __future__ import annotations

import asyncio

from faultline.workers.heartbeat import Heartbeat
from tests.failure_modes.apps import app

__all__ = ["app"]

_tasks: set[asyncio.Task[None]] = set()


def start(self: Heartbeat, *, lock_key: int) -> None:
    async def beat_in_the_loop() -> None:
        while not self._stopping:
            self._beat()
            await asyncio.sleep(self._settings.heartbeat_seconds)

    self._lock_key = lock_key
    _tasks.add(asyncio.get_running_loop().create_task(beat_in_the_loop()))


Heartbeat.start = start  # type: ignore[method-assign]
