"""Measures how fast one process enqueues jobs over one connection."""

from __future__ import annotations

from faultline.postgres.sessions import Connection
from faultline_drills.bench.bench_settings import BenchSettings
from faultline_drills.bench.bench_tasks import wait
from faultline_drills.bench.measurements import MeasuredRate
from faultline_drills.bench.sampling import sample_rate

BATCH = 1000


def measure_bulk_enqueue(
    conn: Connection, settings: BenchSettings, budget_seconds: float
) -> MeasuredRate:
    batch = [settings.arguments()] * BATCH
    n, rates = sample_rate(
        lambda: wait.options(conn=conn).enqueue_many(batch),
        size=BATCH,
        budget_seconds=budget_seconds,
    )
    return MeasuredRate("bulk_enqueue", f"enqueue, {BATCH:,} at a time", n, rates)


def measure_single_enqueue(
    conn: Connection, settings: BenchSettings, budget_seconds: float
) -> MeasuredRate:
    arguments = settings.arguments()
    n, rates = sample_rate(
        lambda: wait.options(conn=conn).enqueue(**arguments), size=1, budget_seconds=budget_seconds
    )
    return MeasuredRate("single_enqueue", "enqueue, one at a time", n, rates)
