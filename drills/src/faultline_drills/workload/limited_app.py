"""An application whose code declares a limit for each value of an argument."""

from __future__ import annotations

from faultline import Faultline, Job, Limit
from faultline_drills.workload import tasks

APP = "faultline_drills.workload.limited_app:app"
MAX_RUNNING = 2

app = Faultline()


@app.task(
    name="limited.pay",
    max_attempts=20,
    retry=tasks.SOON,
    concurrency=Limit(MAX_RUNNING, key="account"),
)
async def pay(job: Job, number: int, account: str, work_seconds: float = 0.0) -> None:
    await tasks.pay.handler(job, number, work_seconds=work_seconds)
