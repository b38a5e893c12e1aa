"""The application of these tests; workers' accounts write to its table."""

from __future__ import annotations

import asyncio

from faultline import Faultline, Job

app = Faultline()


@app.task(name="shop.charge", max_attempts=2)
async def charge(job: Job, invoice: int, stuck_at_first: bool = False) -> int:
    async with job.transaction() as tx:
        await tx.execute("INSERT INTO public.payments (invoice) VALUES (%s)", [invoice])
        if stuck_at_first and job.attempt == 1:
            await asyncio.Event().wait()  # until the worker is killed
    return invoice


@app.task(name="shop.quote", max_attempts=1)
def quote(job: Job) -> None:
    raise ValueError(f"cannot use {app.database_url}")
