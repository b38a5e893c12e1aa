"""The jobs that are measured: as little as a job can do, so that what is seen is the queue."""

from __future__ import annotations

import time

from faultline import Faultline, Job

APP = "faultline_drills.bench.bench_tasks:app"
WAITING_QUEUE = "bench_waiting"  # no worker looks at it

app = Faultline()


@app.task(name="bench.noop")
async def noop(job: Job, filler: str = "") -> None:
    """Returns at once; the worker commits it in a batch with others."""


@app.task(name="bench.write")
async def write(job: Job, filler: str = "") -> None:
    """One row, in the transaction that also ends the job."""
    async with job.transaction() as tx:
        await tx.execute("INSERT INTO drill.bench_effects (job_id) VALUES (%s)", [job.id])


@app.task(name="bench.stamp")
async def stamp(job: Job, filler: str = "") -> float:
    """When it began, by the clock that every process of this machine shares."""
    return time.monotonic()


@app.task(name="bench.wait", queue=WAITING_QUEUE)
async def wait(job: Job, filler: str = "") -> None:
    """For the enqueueing alone: it is never run."""
