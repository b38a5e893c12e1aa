"""A worker is killed between the two halves of a job's effect.

The first row is written and the second is not. The first half belongs to a transaction that never
committed, whether it is Faultline's or the handler's own. In the end the whole effect must exist,
once.
"""

from __future__ import annotations

import signal

from faultline_drills.context import DrillContext
from faultline_drills.processes.process_group import CrashingWorkers
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay, pay_by_hand


@scenario(shows=("kills", "takeovers", "commits"))
def partial_write(drill: DrillContext) -> None:
    for number in range(drill.settings.jobs):
        task = (pay, pay_by_hand)[number % 2]
        is_killed = number < 2 or drill.random.random() < drill.settings.fault_rate / 2
        plan = {"1": "kill@half"} if is_killed else None
        drill.submit(task, number=number, parts=2, plan=plan)
    # One job at a time, so that each kill strikes its own job alone.
    workers = CrashingWorkers(drill, "--concurrency", "1", fault="kill", exit_code=-signal.SIGKILL)
    workers.run_to_the_end()
