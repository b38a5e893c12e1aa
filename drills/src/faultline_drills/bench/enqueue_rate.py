"""Measures how fast one process enqueues jobs over one connection."""

from __future__ import annotations

from faultline.postgres.sessions import Connection
from faultline_drills.bench.bench_settings import BenchSettings
from faultline_drills.bench.bench_tasks import wait
from faultline_drills.bench.measurements import Rate
from faultline_drills.bench.sampling import sample_rate

BATCH = 1000


def measure_bulk_enqueue(conn: Connection, settings: BenchSettings, budget_seconds: float) -> Rate:
    batch = [settings.arguments()] * BATCH
    n, rates = sample_rate(
        lambda: wait.enqueue_many(batch, conn=conn), size=BATCH, budget_seconds=budget_seconds
    )
    return Rate("bulk_enqueue", f"enqueue, {BATCH:,} at a time", n, rates)


def measure_single_enqueue(
    conn: Connection, settings: BenchSettings, budget_seconds: float
) -> Rate:
    arguments = settings.arguments()
    n, rates = sample_rate(
        lambda: wait.enqueue(**arguments, conn=conn), size=1, budget_seconds=budget_seconds
    )
    return Rate("single_enqueue", "enqueue, one at a time", n, rates)
