"""A worker dies between the two halves of a job's effect.

The first row is written, the second is not, and the process is gone. All of it must be there in the
end, once: the first half belongs to a transaction that never committed, whether the transaction is
Faultline's or the handler's own.
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
        is_struck = number < 2 or drill.random.random() < drill.settings.fault_rate / 2
        plan = {"1": "kill@half"} if is_struck else None
        drill.submit(task, number=number, parts=2, plan=plan)
    # One job at a time: each that is struck dies its own death.
    crew = CrashingWorkers(drill, "--concurrency", "1", fault="kill", exit_code=-signal.SIGKILL)
    crew.run_to_the_end()
