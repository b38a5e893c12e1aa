"""Example tasks: a handler that may pay twice, its corrected form, and a reminder."""

import psycopg

import faultline

app = faultline.Faultline()  # DATABASE_URL


@app.task(name="shop.pay_carelessly")
def pay_carelessly(job: faultline.Job, invoice: int) -> None:
    with psycopg.connect(app.database_url) as conn:  # commits on its own, without the fence
        conn.execute("insert into payments (invoice) values (%s)", [invoice])


@app.task(name="shop.pay")
def pay(job: faultline.Job, invoice: int) -> None:
    with job.transaction() as tx:  # commits together with the job, or not at all
        tx.execute("insert into payments (invoice) values (%s)", [invoice])


@app.task(name="shop.remind", retry=faultline.RetryPolicy(base_seconds=60, jitter=0))
async def remind(job: faultline.Job, invoice: int) -> str:
    if job.attempt == 1:
        raise ConnectionError("the mail server is unreachable")
    return f"reminded of invoice {invoice}"
