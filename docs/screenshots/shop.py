"""The application in the screenshots: a shop."""

from __future__ import annotations

import asyncio
import random

from faultline import Faultline, Job

app = Faultline()


@app.task(name="billing.charge", queue="billing", max_attempts=5)
async def charge(job: Job, invoice: int, seconds: float = 0.4) -> None:
    await asyncio.sleep(seconds)
    async with job.transaction() as tx:
        await tx.execute("INSERT INTO shop.payments (invoice) VALUES (%s)", [invoice])


@app.task(name="mail.receipt", queue="mail", max_attempts=3)
async def send_receipt(job: Job, invoice: int) -> dict[str, str]:
    await asyncio.sleep(random.uniform(0.02, 0.2))  # noqa: S311 - not a secret
    return {"sent": f"receipt-{invoice}@shop.example"}


@app.task(name="reports.render", queue="reports")
async def render_report(job: Job, month: str) -> None:
    await asyncio.sleep(random.uniform(6, 14))  # noqa: S311 - not a secret


@app.task(name="stock.sync", queue="stock", max_attempts=1)
async def sync_stock(job: Job, warehouse: str) -> None:
    await asyncio.sleep(0.1)
    if warehouse == "lisbon":
        raise ConnectionError("warehouse lisbon: 503 from https://stock.example/lisbon")
