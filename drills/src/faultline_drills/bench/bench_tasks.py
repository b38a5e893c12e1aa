"""The measured tasks. They do little, so that the queue dominates the time."""

from __future__ import annotations

import time
from typing import Any

from faultline import Batch, Faultline, Job

APP = "faultline_drills.bench.bench_tasks:app"
WAITING_QUEUE = "bench_waiting"  # no worker claims from it
_BATCH_QUEUE = "bench_batches"
BATCH_SIZES = (20, 50, 100, 200)
_INSERT = "INSERT INTO drill.bench_effects (job_id) VALUES (%s)"

app = Faultline()


@app.task(name="bench.noop")
async def noop(job: Job, filler: str = "") -> None:
    """Return at once; the worker commits the job in a batch with others."""


@app.task(name="bench.write")
async def write(job: Job, filler: str = "") -> None:
    """Write one row in the transaction that also commits the job."""
    async with job.transaction() as tx:
        await tx.execute(_INSERT, [job.id])


async def _write_batch(batch: Batch[dict[str, Any]]) -> None:
    async with batch.transaction() as tx:
        await tx.cursor().executemany(_INSERT, [(job.id,) for job in batch])


# The same work as `write`, so many jobs in one transaction.
BATCH_TASKS = {
    size: app.batch_task(name=f"bench.write_{size}", queue=_BATCH_QUEUE, max_size=size)(
        _write_batch
    )
    for size in BATCH_SIZES
}


@app.task(name="bench.stamp")
async def stamp(job: Job, filler: str = "") -> float:
    """Return the start time by the monotonic clock, which all processes share."""
    return time.monotonic()


@app.task(name="bench.wait", queue=WAITING_QUEUE)
async def wait(job: Job, filler: str = "") -> None:
    """Measures enqueueing only: it is never run."""
