"""One look at the queue that serves everyone who asks at about the same time."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from faultline.errors import FaultlineError
from faultline.inspector import overview
from faultline.inspector.overview import Survey
from faultline.inspector.reader import Reader
from faultline.inspector.throughput import Samples

FRESH_SECONDS = 0.9


@dataclass(frozen=True, slots=True)
class Snapshot:
    survey: Survey
    document: dict[str, Any]
    cost_seconds: float


class Snapshots:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._samples = Samples()
        self._latest: Snapshot | FaultlineError | None = None
        self._taken_at = 0.0
        self._looking = asyncio.Lock()

    async def latest(self) -> Snapshot:
        """Not older than FRESH_SECONDS. Whoever comes while a look is under way waits, and shares it: also
        its failure, or everyone would wait in turn for a database that does not answer."""
        async with self._looking:
            if self._latest is None or time.monotonic() - self._taken_at >= FRESH_SECONDS:
                self._latest = None
                try:
                    self._latest = await self._look()
                except FaultlineError as error:
                    self._latest = error
                self._taken_at = time.monotonic()
            if isinstance(self._latest, FaultlineError):
                raise self._latest
            return self._latest

    async def _look(self) -> Snapshot:
        began = time.monotonic()
        async with self._reader.look() as look:
            found = await overview.survey(look)
        document = overview.document(found, self._samples.add(found.sample))
        return Snapshot(found, document, time.monotonic() - began)
