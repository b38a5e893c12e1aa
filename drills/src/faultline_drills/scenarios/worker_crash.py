"""Workers are killed during their jobs, again and again, and replaced.

SIGKILL leaves no time to release a job or to log anything. The loss must be noticed because the
worker's sessions end with it; its jobs are requeued, and its writes are rolled back. A job that ran
beside the killed one must not suffer.
"""

from __future__ import annotations

import signal

from faultline_drills.context import DrillContext
from faultline_drills.processes.process_group import CrashingWorkers
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay

POINTS = ("start", "half", "before_commit")


@scenario(shows=("kills", "takeovers", "commits"))
def worker_crash(drill: DrillContext) -> None:
    kills = _draw_kills(drill)
    for number in range(drill.settings.jobs):
        plan = {"1": f"kill@{kills[number]}"} if number in kills else None
        drill.submit(pay, number=number, plan=plan)
    workers = CrashingWorkers(drill, "--concurrency", "2", fault="kill", exit_code=-signal.SIGKILL)
    workers.run_to_the_end()


def _draw_kills(drill: DrillContext) -> dict[int, str]:
    """The jobs with a kill, and its point: drawn from the seed, at least one."""
    rate, jobs = drill.settings.fault_rate, drill.settings.jobs
    drawn = [number for number in range(jobs) if drill.random.random() < rate]
    return {
        number: drill.random.choice(POINTS) for number in drawn or [drill.random.randrange(jobs)]
    }
