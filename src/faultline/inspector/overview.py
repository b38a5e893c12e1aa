"""The state of the whole queue at one moment, gathered in one look."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from faultline.inspector import attention, leases, registry, rejections, risk, throughput
from faultline.inspector.attention import Failure
from faultline.inspector.latency import Latency, latency
from faultline.inspector.reader import Look
from faultline.inspector.registry import WorkerView
from faultline.inspector.rejections import Refusal, RefusalCount
from faultline.inspector.risk import Risk
from faultline.inspector.throughput import Sample, Throughput
from faultline.statements import clock, queues, workers
from faultline.statements.queues import QueueCount, Standing
from faultline.statements.workers import WorkerStatus

NEWEST_REFUSALS = 100


@dataclass(frozen=True, slots=True)
class Survey:
    """What one look has found."""

    now: datetime
    answered_in_ms: float
    counts: list[QueueCount]
    workers: list[WorkerView]
    risk: Risk
    refusals: RefusalCount
    newest_refusals: list[Refusal]
    latency: Latency
    sample: Sample
    paused: frozenset[str]
    failures: list[Failure]


async def survey(look: Look) -> Survey:
    asked_at = time.perf_counter()
    now = await look.read(clock.database_time())
    answered_in_ms = (time.perf_counter() - asked_at) * 1000
    workers = await read_workers(look)
    refusals = await look.read(rejections.count(recent_seconds=risk.RECENT_SECONDS))
    pulse = await look.read(leases.pulse())
    return Survey(
        now=now,
        answered_in_ms=answered_in_ms,
        counts=await look.read(queues.queues()),
        workers=workers,
        risk=risk.assess(risk.inputs(pulse, workers, refusals.recent)),
        refusals=refusals,
        newest_refusals=(await look.read(rejections.page(limit=NEWEST_REFUSALS))).rejections,
        latency=await look.read(latency()),
        sample=await look.read(throughput.sample()),
        paused=frozenset(each.queue for each in await look.read(queues.paused())),
        failures=await look.read(attention.failures()),
    )


async def read_workers(look: Look) -> list[WorkerView]:
    sightings = await look.read(workers.registry())
    registered = await look.read(registry.registrations())
    return registry.views(sightings, registered)


def document(found: Survey, rate: Throughput) -> dict[str, Any]:
    statuses = Counter(worker.status for worker in found.workers)
    due = [count.oldest_seconds for count in found.counts if count.standing is Standing.DUE]
    return {
        "now": found.now,
        "attention": attention.document(found.counts, found.workers, found.paused, found.failures),
        "database": {"ok": True, "latency_ms": round(found.answered_in_ms, 3)},
        "totals": totals(found.counts),
        "throughput": rate,
        "latency": found.latency,
        "oldest_due_seconds": max((age for age in due if age is not None), default=None),
        "workers": {status.value: statuses[status] for status in WorkerStatus},
        "risk": found.risk.document(),
        "rejections_last_hour": found.refusals.last_hour,
        "rejections_is_exact": found.refusals.is_exact,
    }


def totals(counts: Sequence[QueueCount]) -> dict[str, Any]:
    """Over all queues; where one was not counted to its end, its estimate stands for it."""
    shown = (Standing.DUE, Standing.SCHEDULED, Standing.RUNNING, Standing.FAILED)
    sums: dict[str, Any] = dict.fromkeys((standing.value for standing in shown), 0)
    for count in counts:
        if count.standing in shown:
            sums[count.standing.value] += max(count.at_least, count.estimate or 0)
    exact = all(count.is_exact for count in counts if count.standing in shown)
    return {**sums, "is_exact": exact}
