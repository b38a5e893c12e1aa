"""A worker is stopped in the middle of its jobs, and comes back after others have finished them.

Every thread of it stands still, heartbeats included, as in a long pause for garbage or a frozen
virtual machine. Its leases run out, its jobs are done elsewhere, and then it wakes up and carries on
where it was, with nothing in its memory to tell it that time has passed. Self-fencing is off: only
the database stands between it and a second payment.
"""

from __future__ import annotations

from typing import Any

from faultline.task import Task
from faultline_drills.context import DrillContext
from faultline_drills.processes.stalled_worker import resume_until_done, stalled_worker
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import note, pay

SHOWS = ("stops", "takeovers", "stale_rejections", "commits")


@scenario(shows=SHOWS, breaks_naive=True)
def stale_takeover(drill: DrillContext) -> None:
    _stall_and_come_back(drill, pay)


@scenario(shows=SHOWS, breaks_naive=True)
def stale_batch(drill: DrillContext) -> None:
    """A stopped worker comes back with jobs that have no writes of their own, and enters them in a batch.

    Others have finished them long ago. The batch is answered job by job, and what the worker reports
    must be what it was answered.
    """
    _stall_and_come_back(drill, note)


def _stall_and_come_back(drill: DrillContext, task: Task[Any, Any]) -> None:
    jobs = drill.settings.jobs
    for number in range(jobs):
        drill.submit(task, number=number, plan={"1": "stop@start"})
    late = stalled_worker(drill)
    for number in range(drill.settings.workers):
        drill.worker(name=f"steady-{number + 1}")
    drill.wait_until(
        lambda: drill.count("SELECT count(*) FROM faultline.ledger") >= jobs, "the takeover"
    )
    resume_until_done(drill, late, attempts=jobs)
