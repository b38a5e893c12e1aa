"""Most workers are killed at the same moment, and then all of them.

Many sessions end at once, as in a network failure, but the reconciler's session goes on: it is in a
surviving worker, or in a process of its own. The jobs must be requeued at once because their
workers are lost, and not when their leases expire, which takes longer than the drill.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

from faultline_drills.context import DrillContext
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay

_WORKERS = 3  # beside one that survives
_LEASE = ("--lease-seconds", "600", "--concurrency", "4")


@scenario(shows=("kills", "takeovers", "commits"))
def workers_killed_together(drill: DrillContext) -> None:
    bystander = drill.started_worker(*_LEASE, "--queues", "elsewhere", name="bystander")
    _kill_together(drill, "most", beside=())
    reconciler = drill.worker(command="reconciler", name="reconciler")
    _kill_together(drill, "all", beside=(bystander,))
    drill.expect(reconciler.is_alive, "the reconciler ended")
    drill.started_worker(*_LEASE)
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")
    causes = drill.query("SELECT DISTINCT outcome FROM faultline.attempts_log")
    drill.expect(
        causes == [("worker_lost",)], f"jobs were requeued as {causes}, not as worker_lost"
    )


def _kill_together(drill: DrillContext, name: str, *, beside: Sequence[ObservedProcess]) -> None:
    """Kill the workers during their jobs, and wait until these are requeued."""
    workers = [drill.started_worker(*_LEASE) for _ in range(_WORKERS)]
    jobs = min(drill.settings.jobs, 4 * _WORKERS)
    for number in range(jobs):
        drill.submit(pay, key=f"{name}-{number}", number=number, plan={"1": "hang@start"})
    drill.wait_until(lambda: _hanging(drill) == jobs, "the start of every job")
    for worker in (*workers, *beside):
        worker.send(signal.SIGKILL)
    for worker in (*workers, *beside):
        worker.kill()
        drill.inject("kill", worker.name)
    drill.wait_until(lambda: _hanging(drill) == 0, "the requeueing of the jobs")


def _hanging(drill: DrillContext) -> int:
    return drill.count(
        "SELECT count(*) FROM faultline.jobs WHERE state = 'running' AND fencing_token = 1"
    )
