"""A worker that stalls (SIGSTOP) during its jobs, and resumes after a takeover.

It runs without self-fencing, so that only PostgreSQL can refuse its late writes.
"""

from __future__ import annotations

from typing import Any

from faultline.task import Task
from faultline_drills.context import DrillContext
from faultline_drills.processes.observed_process import ObservedProcess


def stalled_worker(drill: DrillContext, *options: str, **given: Any) -> ObservedProcess:
    """Start a worker that claims every job, and wait until a plan has stopped it."""
    jobs = str(max(1, drill.unfinished()))
    options = ("--no-self-fencing", "--concurrency", jobs, *options)
    late = drill.worker(*options, name="late", **given)
    drill.wait_until(lambda: late.is_stopped, "the stall", by=late)
    drill.inject("stop", late.name)
    return late


def resume_until_done(drill: DrillContext, late: ObservedProcess, *, attempts: int) -> None:
    """Resume the worker until so many of its attempts have ended.

    Every job's plan stops the worker again, so it is resumed once per job.
    """

    def is_over() -> bool:
        if late.is_stopped:
            late.resume()
        return len(late.events_named("worker_exit")) >= attempts

    drill.wait_until(is_over, "the end of the stalled worker's attempts", by=late)


def stall_until_taken_over(drill: DrillContext, task: Task[Any, Any]) -> None:
    """Stall a worker in jobs of `task`; resume it when others have committed them."""
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
