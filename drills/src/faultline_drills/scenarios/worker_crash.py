"""Workers are killed in the middle of their jobs, again and again, and replaced each time.

SIGKILL leaves no time for anything: no handing back, no last word. What the worker held is noticed
because its sessions end with it, and goes back to the queue; what it had written is rolled back with
its transaction. A job that was merely there when its worker died is no worse off than the one that
killed it.
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
    struck = strike(drill)
    for number in range(drill.settings.jobs):
        plan = {"1": f"kill@{struck[number]}"} if number in struck else None
        drill.submit(pay, number=number, plan=plan)
    crew = CrashingWorkers(drill, "--concurrency", "2", fault="kill", exit_code=-signal.SIGKILL)
    crew.run_to_the_end()


def strike(drill: DrillContext) -> dict[int, str]:
    """Which jobs are struck, and where: drawn from the seed, at least one."""
    rate, jobs = drill.settings.fault_rate, drill.settings.jobs
    drawn = [number for number in range(jobs) if drill.random.random() < rate]
    return {
        number: drill.random.choice(POINTS) for number in drawn or [drill.random.randrange(jobs)]
    }
