"""Counts what only the leading reconciler shows to Prometheus: queues, workers, and what was lost.

Beside the leader and not in it, with a session of its own: recovery never waits for a count.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from faultline.errors import FaultlineError
from faultline.metrics import meter
from faultline.postgres.driver import DriverError
from faultline.postgres.reconnecting import ReconnectingSession, raise_if_cancelled
from faultline.statements import losses, queues, workers

COUNT_SECONDS = 5.0
_COUNTING_SHARE = 20  # one part in so many of the time, where counting is dear
_ANSWER_SECONDS = 30.0
_PAGES = 10  # of the log, at once; the rest waits for the next count


class Census:
    def __init__(self, url: str) -> None:
        self._link = ReconnectingSession(url, purpose="census", answer_seconds=_ANSWER_SECONDS)
        self._read_up_to: int | None = None

    async def run(self) -> None:
        """Until cancelled. What cannot be counted now is left as it is until the next count."""
        try:
            self._read_up_to = None  # somebody else led until now, and counted what was lost
            while True:
                began = time.monotonic()
                try:
                    await self._count()
                except (FaultlineError, DriverError) as error:
                    raise_if_cancelled(error)
                cost = time.monotonic() - began
                await asyncio.sleep(max(COUNT_SECONDS, _COUNTING_SHARE * cost))
        finally:
            await self._link.close()

    async def _count(self) -> None:
        await self._count_losses()
        sightings = await self._link.run(workers.registry())
        meter.current.workers(Counter(sighting.status.value for sighting in sightings))
        counts = await self._link.run(queues.queues())
        meter.current.queues(counts)

    async def _count_losses(self) -> None:
        if self._read_up_to is None:
            self._read_up_to = await self._link.run(losses.log_end())
        for _ in range(_PAGES):
            lost = await self._link.run(losses.losses(self._read_up_to))
            if lost.last_id == self._read_up_to:
                return
            self._read_up_to = lost.last_id
            meter.current.expired(lost.expired)
            for (queue, reason), number in lost.buried.items():
                meter.current.failed(queue, reason, number)
