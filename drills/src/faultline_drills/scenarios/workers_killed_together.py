"""Most workers are killed at the same moment, then all of them, while the server goes on.

A mass death looks like a cut network: many sessions end at once. The difference is that the session of the
reconciler, in a worker that is left or in a process of its own, goes on. So the jobs are requeued because
their workers are lost, at once, and not when their leases run out, which takes longer than the drill.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

from faultline_drills.context import DrillContext
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay

_CREW = 3  # with one more, most of a crowd
_LEASE = ("--lease-seconds", "600", "--concurrency", "4")


@scenario(shows=("kills", "takeovers", "commits"))
def workers_killed_together(drill: DrillContext) -> None:
    bystander = drill.started_worker(*_LEASE, "--queues", "elsewhere", name="bystander")
    _work_and_die(drill, "most", beside=())
    reconciler = drill.worker(command="reconciler", name="reconciler")
    _work_and_die(drill, "all", beside=(bystander,))
    drill.expect(reconciler.is_alive, "the reconciler goes on")
    drill.started_worker(*_LEASE)
    drill.wait_until(lambda: drill.unfinished() == 0, "every job is done")
    causes = drill.query("SELECT DISTINCT outcome FROM faultline.attempts_log")
    drill.expect(causes == [("worker_lost",)], f"jobs came back as {causes}, not as worker_lost")


def _work_and_die(drill: DrillContext, name: str, *, beside: Sequence[ObservedProcess]) -> None:
    """Kill a crew in the middle of its jobs, together with those beside it; the jobs come back."""
    crew = [drill.started_worker(*_LEASE) for _ in range(_CREW)]
    jobs = min(drill.settings.jobs, 4 * _CREW)
    for number in range(jobs):
        drill.submit(pay, key=f"{name}-{number}", number=number, plan={"1": "hang@start"})
    drill.wait_until(lambda: _hanging(drill) == jobs, "every job has begun")
    for worker in (*crew, *beside):
        worker.send(signal.SIGKILL)
    for worker in (*crew, *beside):
        worker.kill()
        drill.inject("kill", worker.name)
    drill.wait_until(lambda: _hanging(drill) == 0, "the jobs are queued again")


def _hanging(drill: DrillContext) -> int:
    return drill.count(
        "SELECT count(*) FROM faultline.jobs WHERE state = 'running' AND fencing_token = 1"
    )
