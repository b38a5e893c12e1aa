"""Counts that only the leading reconciler exports: queues, limits and others.

It runs beside the reconciler with its own session, so that recovery never waits for a count.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from faultline.errors import FaultlineError
from faultline.metrics import meter
from faultline.postgres.driver import DriverError
from faultline.postgres.reconnecting import ReconnectingSession, raise_if_cancelled
from faultline.statements import firing, limit_keys, limits, lost_attempts, queues, workers

COUNT_SECONDS = 5.0
_COUNTING_SHARE = 20  # counting takes at most 1/20 of the time
_ANSWER_SECONDS = 30.0
_PAGES = 10  # pages of the log in one count; the rest waits for the next one
_PAGES_OF_KEYS = 100  # limit keys that jobs wait for, a thousand on each page


class LeaderMetrics:
    def __init__(self, url: str) -> None:
        self._session = ReconnectingSession(url, purpose="census", answer_seconds=_ANSWER_SECONDS)
        self._read_up_to: int | None = None

    async def run(self) -> None:
        """Count until cancelled. A failed count leaves the old figures."""
        try:
            self._read_up_to = (
                None  # another reconciler led until now, and counted the lost attempts
            )
            while True:
                began = time.monotonic()
                try:
                    await self._count()
                except (FaultlineError, DriverError) as error:
                    raise_if_cancelled(error)
                cost = time.monotonic() - began
                await asyncio.sleep(max(COUNT_SECONDS, _COUNTING_SHARE * cost))
        finally:
            await self._session.close()

    async def _count(self) -> None:
        await self._count_lost_attempts()
        sightings = await self._session.run(workers.registry())
        meter.current.workers(Counter(sighting.status.value for sighting in sightings))
        by_state = await self._session.run(firing.schedule_states())
        meter.current.schedules(by_state)
        counts = await self._session.run(queues.queues())
        meter.current.queues(counts)
        uses = await self._session.run(limits.uses())
        waits = any(use.waiting for use in uses)
        meter.current.limits(uses, await self._idle_keys() if waits else {})

    async def _idle_keys(self) -> Counter[str]:
        found, after = Counter[str](), None
        for _ in range(_PAGES_OF_KEYS):
            page = await self._session.run(limit_keys.idle_keys(after))
            found.update(page.by_limit)
            after = page.last_key
            if after is None:
                break
        return found

    async def _count_lost_attempts(self) -> None:
        if self._read_up_to is None:
            self._read_up_to = await self._session.run(lost_attempts.log_end())
        for _ in range(_PAGES):
            lost = await self._session.run(lost_attempts.lost_since(self._read_up_to))
            if lost.last_id == self._read_up_to:
                return
            self._read_up_to = lost.last_id
            meter.current.expired(lost.expired)
            for (queue, reason), number in lost.dead_jobs.items():
                meter.current.failed(queue, reason, number)
