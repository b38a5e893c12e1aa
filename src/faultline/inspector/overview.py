"""The state of the whole queue at one moment, and snapshots that requests share.

Reading the ledger to count it would cost too much. PostgreSQL counts the rows that were ever inserted into
each table, and the difference between two readings is the number of new entries. Sessions report their
counts about once a second, idle ones later, and rolled back inserts count too: the rate is approximate.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from faultline.errors import FaultlineError
from faultline.inspector import attention, risk
from faultline.inspector.reader import Reader, ReadTransaction
from faultline.inspector.risk import Risk
from faultline.inspector.worker_view import WorkerView, read_workers
from faultline.statements import clock, leases, queues, rejections, schedules, statistics
from faultline.statements.queues import CountedState, QueueCount
from faultline.statements.rejections import RejectedWrite, RejectionCount
from faultline.statements.schedules import ScheduleProblem
from faultline.statements.statistics import FailedJob, Latency, LedgerSample
from faultline.statements.workers import WorkerStatus

NEWEST_REJECTIONS = 100
FRESH_SECONDS = 0.9
WINDOW_SECONDS = 10.0
LONGEST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Throughput:
    succeeded_per_second: float | None  # None: there is no earlier sample
    window_seconds: float


@dataclass(frozen=True, slots=True)
class OverviewData:
    now: datetime
    answered_in_ms: float
    counts: list[QueueCount]
    workers: list[WorkerView]
    risk: Risk
    rejections: RejectionCount
    newest_rejections: list[RejectedWrite]
    latency: Latency
    sample: LedgerSample
    paused: frozenset[str]
    failures: list[FailedJob]
    schedules: list[ScheduleProblem]


async def read(tx: ReadTransaction) -> OverviewData:
    asked_at = time.perf_counter()
    now = await tx.read(clock.database_time())
    answered_in_ms = (time.perf_counter() - asked_at) * 1000
    workers = await read_workers(tx)
    counted = await tx.read(rejections.count(recent_seconds=risk.RECENT_SECONDS))
    summary = await tx.read(leases.summary())
    return OverviewData(
        now=now,
        answered_in_ms=answered_in_ms,
        counts=await tx.read(queues.queues()),
        workers=workers,
        risk=risk.assess(risk.inputs(summary, workers, counted.recent)),
        rejections=counted,
        newest_rejections=(await tx.read(rejections.page(limit=NEWEST_REJECTIONS))).rejections,
        latency=await tx.read(statistics.latency()),
        sample=await tx.read(statistics.ledger_sample()),
        paused=frozenset(each.queue for each in await tx.read(queues.paused())),
        failures=await tx.read(statistics.failures()),
        schedules=await tx.read(schedules.problems(limit=attention.SHOWN)),
    )


def document(data: OverviewData, throughput: Throughput) -> dict[str, Any]:
    statuses = Counter(worker.status for worker in data.workers)
    due = [count.oldest_seconds for count in data.counts if count.standing is CountedState.DUE]
    return {
        "now": data.now,
        "attention": attention.document(
            data.counts, data.workers, data.paused, data.failures, data.schedules
        ),
        "database": {"ok": True, "latency_ms": round(data.answered_in_ms, 3)},
        "totals": totals(data.counts),
        "throughput": throughput,
        "latency": data.latency,
        "oldest_due_seconds": max((age for age in due if age is not None), default=None),
        "workers": {status.value: statuses[status] for status in WorkerStatus},
        "risk": data.risk.document(),
        "rejections_last_hour": data.rejections.last_hour,
        "rejections_is_exact": data.rejections.is_exact,
    }


def totals(counts: Sequence[QueueCount]) -> dict[str, Any]:
    """Over all queues; where counting stopped at its bound, the estimate is used."""
    shown = tuple(state for state in CountedState if state is not CountedState.SUCCEEDED)
    sums: dict[str, Any] = dict.fromkeys((standing.value for standing in shown), 0)
    for count in counts:
        if count.standing in shown:
            sums[count.standing.value] += max(count.at_least, count.estimate or 0)
    exact = all(count.is_exact for count in counts if count.standing in shown)
    return {**sums, "is_exact": exact}


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
            data = await read(tx)
        shown = document(data, self._samples.add(data.sample))
        return Snapshot(data, shown, time.monotonic() - began)


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
