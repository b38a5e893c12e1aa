"""The measured tasks. They do little, so that the queue dominates the time."""

from __future__ import annotations

import time

from faultline import Faultline, Job

APP = "faultline_drills.bench.bench_tasks:app"
WAITING_QUEUE = "bench_waiting"  # no worker claims from it

app = Faultline()


@app.task(name="bench.noop")
async def noop(job: Job, filler: str = "") -> None:
    """Return at once; the worker commits the job in a batch with others."""


@app.task(name="bench.write")
async def write(job: Job, filler: str = "") -> None:
    """Write one row in the transaction that also commits the job."""
    async with job.transaction() as tx:
        await tx.execute("INSERT INTO drill.bench_effects (job_id) VALUES (%s)", [job.id])


@app.task(name="bench.stamp")
async def stamp(job: Job, filler: str = "") -> float:
    """Return the start time by the monotonic clock, which all processes share."""
    return time.monotonic()


@app.task(name="bench.wait", queue=WAITING_QUEUE)
async def wait(job: Job, filler: str = "") -> None:
    """Measures enqueueing only: it is never run."""
