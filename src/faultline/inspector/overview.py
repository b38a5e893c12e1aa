"""The state of the whole queue at one moment, read in one transaction."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from faultline.inspector import attention, risk
from faultline.inspector.reader import ReadTransaction
from faultline.inspector.risk import Risk
from faultline.inspector.worker_view import WorkerView, read_workers
from faultline.statements import clock, leases, queues, rejections, statistics
from faultline.statements.queues import QueueCount, Standing
from faultline.statements.rejections import RejectedWrite, RejectionCount
from faultline.statements.statistics import FailedJob, Latency, LedgerSample
from faultline.statements.workers import WorkerStatus

NEWEST_REJECTIONS = 100


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
    )


def document(data: OverviewData, throughput: Throughput) -> dict[str, Any]:
    statuses = Counter(worker.status for worker in data.workers)
    due = [count.oldest_seconds for count in data.counts if count.standing is Standing.DUE]
    return {
        "now": data.now,
        "attention": attention.document(data.counts, data.workers, data.paused, data.failures),
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
    shown = (Standing.DUE, Standing.SCHEDULED, Standing.RUNNING, Standing.FAILED)
    sums: dict[str, Any] = dict.fromkeys((standing.value for standing in shown), 0)
    for count in counts:
        if count.standing in shown:
            sums[count.standing.value] += max(count.at_least, count.estimate or 0)
    exact = all(count.is_exact for count in counts if count.standing in shown)
    return {**sums, "is_exact": exact}
