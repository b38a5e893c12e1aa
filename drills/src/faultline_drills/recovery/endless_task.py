"""A task that records its process id and then runs until its worker ends."""

from __future__ import annotations

import asyncio
import os

from faultline import Faultline, Job

app = Faultline()


@app.task(name="recovery.linger", max_attempts=1000)
async def linger(job: Job) -> None:
    async with job.fenced() as conn:
        await conn.execute(
            "INSERT INTO recovery.starts (job_id, token, pid) VALUES (%s, %s, %s)",
            [job.id, job.token, os.getpid()],
        )
    await asyncio.Event().wait()
