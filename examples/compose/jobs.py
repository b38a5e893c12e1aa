"""Example tasks of compose.yaml: a charge, a flaky reminder, a slow report."""

import asyncio

import faultline

app = faultline.Faultline()  # DATABASE_URL, or the file that DATABASE_URL_FILE names


@app.task(name="shop.charge", queue="billing", max_attempts=5)
async def charge(job: faultline.Job, invoice: int, cents: int) -> None:
    async with job.transaction() as tx:  # the payment and "succeeded" are one commit
        await tx.execute(
            "insert into shop.payments (invoice, cents) values (%s, %s)", [invoice, cents]
        )


@app.task(name="shop.remind", retry=faultline.RetryPolicy(base_seconds=2))
async def remind(job: faultline.Job, invoice: int) -> str:
    if job.attempt == 1:
        raise ConnectionError("the mail server is unreachable")
    return f"reminded of invoice {invoice}"


@app.task(name="shop.report")
async def report(job: faultline.Job, seconds: float) -> str:
    await asyncio.sleep(seconds)
    return f"took {seconds:g} s"
