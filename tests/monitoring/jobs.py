"""The monitored application: jobs that succeed, retry, fail and are taken over."""

from __future__ import annotations

import psycopg

from faultline import Faultline, Job, RetryPolicy
from tests.waiting import idle, wait_until

app = Faultline()

_STILL_HELD = "SELECT FROM faultline.jobs WHERE id = %s AND fencing_token = %s"

TAKEOVER_LIMIT_SECONDS = 300.0
RETRY_AT_ONCE = RetryPolicy(base_seconds=0.05, cap_seconds=0.1)


@app.task(queue="steady", retry=RETRY_AT_ONCE)
async def tick(job: Job) -> None:
    """Enqueue itself and other jobs, so that every metric keeps changing."""
    await idle(0.05)
    await tick.enqueue_async()
    await do_nothing.options(idempotency_key="the same job every time").enqueue_async()
    await fail.enqueue_async()


@app.task(queue="steady", retry=RETRY_AT_ONCE)
async def do_nothing(job: Job) -> None:
    pass


@app.task(queue="shaky", max_attempts=2, retry=RETRY_AT_ONCE)
async def fail(job: Job) -> None:
    raise RuntimeError("this task always fails")


@app.task(queue="contested", retry=RETRY_AT_ONCE)
def outlive_lease(job: Job) -> None:
    """Run the first attempt until another worker has claimed the job."""
    if job.attempt == 1:
        with psycopg.connect(app.database_url, autocommit=True) as conn:
            wait_until(
                lambda: conn.execute(_STILL_HELD, [job.id, job.token]).fetchone() is None,
                "a claim by another worker",
                limit_seconds=TAKEOVER_LIMIT_SECONDS,
            )
