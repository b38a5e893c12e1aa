"""The tasks of these tests, which use the marks and gates of the process tests."""

from __future__ import annotations

import os
import resource
import signal

import psycopg

from faultline import Job
from tests.processes.apps import SOON, app, mark_async, pay_now, wait_at_async

__all__ = ["app"]

NEVER = "never"
BOOK = "INSERT INTO bookings (job_id, token, side) VALUES (%s, %s, %s)"
BOOKINGS = "CREATE TABLE bookings (job_id uuid, token bigint, side text)"


async def pause(job: Job, here: str, wanted: str) -> None:
    """Let the first attempt wait for ever at the point `wanted`."""
    if job.attempt == 1 and here == wanted:
        await mark_async(job, here)
        await wait_at_async(NEVER)


@app.task(retry=SOON)
async def transfer(job: Job, stop: str) -> None:
    """Two writes and the job's commit in one transaction."""
    await pause(job, "before", stop)
    async with job.transaction() as conn:
        await conn.execute(BOOK, [job.id, job.token, "debit"])
        await pause(job, "between", stop)
        await conn.execute(BOOK, [job.id, job.token, "credit"])
        await pause(job, "after", stop)


@app.task(retry=SOON)
async def transfer_piecemeal(job: Job, stop: str) -> None:
    """The same two writes, each in its own transaction."""
    async with await psycopg.AsyncConnection.connect(app.database_url, autocommit=True) as conn:
        await conn.execute(BOOK, [job.id, job.token, "debit"])
        await pause(job, "between", stop)
        await conn.execute(BOOK, [job.id, job.token, "credit"])


@app.task(retry=SOON)
async def fail_late(job: Job, gate: str) -> None:
    """The first attempt fails when the gate opens; later ones pay."""
    await mark_async(job, "started")
    if job.token == 1:
        await wait_at_async(gate)
        raise RuntimeError("too late to matter")
    await pay_now(job)


@app.task(max_attempts=2)
async def kill_the_worker(job: Job) -> None:
    """Kill the worker until the gate `repaired` is open."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    await mark_async(job, "started")
    async with await psycopg.AsyncConnection.connect(app.database_url, autocommit=True) as conn:
        found = await conn.execute("SELECT FROM app.gates WHERE name = 'repaired'")
        if await found.fetchone() is None:
            os.kill(os.getpid(), signal.SIGKILL)
    await pay_now(job)


@app.task()
async def transfer_nothing(job: Job) -> None:
    """Succeed without writes."""
