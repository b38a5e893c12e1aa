"""Readings of the whole queue, shared by requests; and the throughput.

Reading the ledger to count it would cost too much. PostgreSQL counts the rows that were ever inserted into
each table, and the difference between two readings is the number of new entries. Sessions report their
counts about once a second, idle ones later, and rolled back inserts count too: the rate is approximate.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from faultline.errors import FaultlineError
from faultline.inspector import overview
from faultline.inspector.overview import OverviewData, Throughput
from faultline.inspector.reader import Reader
from faultline.statements.statistics import LedgerSample

FRESH_SECONDS = 0.9
WINDOW_SECONDS = 10.0
LONGEST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    data: OverviewData
    document: dict[str, Any]
    cost_seconds: float


class Snapshots:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._samples = LedgerSamples()
        self._latest: Snapshot | FaultlineError | None = None
        self._taken_at = 0.0
        self._lock = asyncio.Lock()

    async def latest(self) -> Snapshot:
        """At most FRESH_SECONDS old.

        Callers that arrive while a reading is in progress wait for it and share it. They also share its
        error; otherwise each of them would wait in turn for a database that does not answer.
        """
        async with self._lock:
            if self._latest is None or time.monotonic() - self._taken_at >= FRESH_SECONDS:
                self._latest = None
                try:
                    self._latest = await self._read()
                except FaultlineError as error:
                    self._latest = error
                self._taken_at = time.monotonic()
            if isinstance(self._latest, FaultlineError):
                raise self._latest
            return self._latest

    async def _read(self) -> Snapshot:
        began = time.monotonic()
        async with self._reader.transaction() as tx:
            data = await overview.read(tx)
        document = overview.document(data, self._samples.add(data.sample))
        return Snapshot(data, document, time.monotonic() - began)


class LedgerSamples:
    """Computes the throughput from the samples of the last seconds.

    The rate is over WINDOW_SECONDS, or since the previous sample if that is older. A sample older than
    LONGEST_SECONDS is not used.
    """

    def __init__(self) -> None:
        self._samples: deque[LedgerSample] = deque()

    def add(self, newest: LedgerSample) -> Throughput:
        last = self._samples[-1] if self._samples else None
        if last and (newest.entries < last.entries or newest.at_seconds <= last.at_seconds):
            self._samples.clear()  # the statistics were reset, or the clock was set back
        self._samples.append(newest)
        while len(self._samples) > 1 and not self._is_usable(self._samples[0], newest):
            self._samples.popleft()
        oldest = self._samples[0]
        seconds = newest.at_seconds - oldest.at_seconds
        if not seconds:
            return Throughput(None, 0.0)
        return Throughput((newest.entries - oldest.entries) / seconds, seconds)

    def _is_usable(self, oldest: LedgerSample, newest: LedgerSample) -> bool:
        age = newest.at_seconds - oldest.at_seconds
        is_only_other = len(self._samples) == 2
        return age <= (LONGEST_SECONDS if is_only_other else WINDOW_SECONDS)
