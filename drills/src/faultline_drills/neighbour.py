"""Another service on the same database: its application has one task, which the workload's has not."""

from __future__ import annotations

from faultline import Faultline, Job
from faultline_drills import workload

APP = "faultline_drills.neighbour:app"

app = Faultline()


@app.task(name="neighbour.pay", max_attempts=2, retry=workload.SOON)
async def pay(job: Job, number: int) -> None:
    await workload.pay.handler(job, number)
