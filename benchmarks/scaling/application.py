"""Tasks that do nothing, so that only the queue is timed."""

from __future__ import annotations

import asyncio

import faultline
from faultline.retry_policy import RetryPolicy

NAME = "benchmarks.scaling.application:app"
FLAKY_SHARE = 10  # one in this many jobs fails at its first attempt

app = faultline.Faultline()


@app.task(name="noop")
async def noop(job: faultline.Job, n: int) -> None:
    return


@app.task(name="flaky", retry=RetryPolicy(base_seconds=0.05, cap_seconds=0.05))
async def flaky(job: faultline.Job, n: int) -> None:
    if n % FLAKY_SHARE == 0 and job.attempt == 1:
        raise RuntimeError("the first attempt of this job fails")


@app.task(name="sleeper")
async def sleeper(job: faultline.Job, n: int) -> None:
    await asyncio.sleep(3_600)
