"""Workers are killed in the middle of their jobs, again and again, and replaced each time.

SIGKILL leaves no time for anything: no handing back, no last word. What the worker held is noticed
because its sessions end with it, and goes back to the queue; what it had written is rolled back with
its transaction. A job that was merely there when its worker died is no worse off than the one that
killed it.
"""

from __future__ import annotations

import signal

from faultline_drills.arena import Arena
from faultline_drills.crew import Crew
from faultline_drills.scenario import scenario
from faultline_drills.workload import pay

POINTS = ("start", "half", "before_commit")


@scenario(shows=("kills", "takeovers", "commits"))
def worker_crash(arena: Arena) -> None:
    struck = strike(arena)
    for number in range(arena.settings.jobs):
        plan = {"1": f"kill@{struck[number]}"} if number in struck else None
        arena.submit(pay, number=number, plan=plan)
    crew = Crew(arena, "--concurrency", "2", fault="kill", exit_code=-signal.SIGKILL)
    crew.work_to_the_end()


def strike(arena: Arena) -> dict[int, str]:
    """Which jobs are struck, and where: drawn from the seed, at least one."""
    rate, jobs = arena.settings.fault_rate, arena.settings.jobs
    drawn = [number for number in range(jobs) if arena.random.random() < rate]
    return {
        number: arena.random.choice(POINTS) for number in drawn or [arena.random.randrange(jobs)]
    }
