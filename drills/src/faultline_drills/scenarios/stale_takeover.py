"""A worker is stopped during its jobs, and resumes after others finished them.

Every thread stands still, heartbeats included, as in a long GC pause or a frozen virtual machine.
Its leases expire, other workers run its jobs, and it resumes without knowing that time has passed.
Self-fencing is off: PostgreSQL alone must refuse its commits.
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
    """A stopped worker resumes and commits its finished jobs in a batch.

    These jobs have no writes of their own, and other workers have finished them. The batch is
    answered per job, and the worker must report what it was answered.
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
