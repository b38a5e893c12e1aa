"""A second application on the same database, with a task that the first one lacks."""

from __future__ import annotations

from faultline import Faultline, Job
from faultline_drills.workload import tasks

APP = "faultline_drills.workload.second_app:app"

app = Faultline()


@app.task(name="second.pay", max_attempts=2, retry=tasks.SOON)
async def pay(job: Job, number: int) -> None:
    await tasks.pay.handler(job, number)
