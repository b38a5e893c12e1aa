"""The application that is watched: jobs of every fate."""

from __future__ import annotations

import asyncio
import time

import psycopg

from faultline import Faultline, Job, RetryPolicy

app = Faultline()

_MINE = "SELECT FROM faultline.jobs WHERE id = %s AND fencing_token = %s"

SOON = RetryPolicy(base_seconds=0.05, cap_seconds=0.1)


@app.task(queue="steady", retry=SOON)
async def tick(job: Job) -> None:
    """Sees to it that there is always something to count."""
    await asyncio.sleep(0.05)
    await tick.enqueue_async()
    await rest.enqueue_async(idempotency_key="made once, and then found")
    await stumble.enqueue_async()


@app.task(queue="steady", retry=SOON)
async def rest(job: Job) -> None:
    pass


@app.task(queue="shaky", max_attempts=2, retry=SOON)
async def stumble(job: Job) -> None:
    raise RuntimeError("as it was asked to")


@app.task(queue="contested", retry=SOON)
def outlive(job: Job) -> None:
    """The first attempt goes on until another one has taken its job; it is refused when it returns."""
    if job.attempt == 1:
        with psycopg.connect(app.database_url, autocommit=True) as conn:
            while conn.execute(_MINE, [job.id, job.token]).fetchone() is not None:
                time.sleep(0.02)
