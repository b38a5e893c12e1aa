"""Another service on the same database: its application has one task, which the workload's has not."""

from __future__ import annotations

from faultline import Faultline, Job
from faultline_drills.workload import tasks

APP = "faultline_drills.workload.second_app:app"

app = Faultline()


@app.task(name="second.pay", max_attempts=2, retry=tasks.SOON)
async def pay(job: Job, number: int) -> None:
    await tasks.pay.handler(job, number)
