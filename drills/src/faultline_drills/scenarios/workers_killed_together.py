"""Most workers are killed at the same moment, then all of them, while the server goes on.

A mass death looks like a cut network: many sessions end at once. The difference is that the session of the
reconciler, in a worker that is left or in a process of its own, goes on. So the jobs are requeued because
their workers are lost, at once, and not when their leases run out, which takes longer than the drill.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

from faultline_drills.arena import Arena
from faultline_drills.scenario import scenario
from faultline_drills.witness import Witness
from faultline_drills.workload import pay

_CREW = 3  # with one more, most of a crowd
_LEASE = ("--lease-seconds", "600", "--concurrency", "4")


@scenario(shows=("kills", "takeovers", "commits"))
def workers_killed_together(arena: Arena) -> None:
    bystander = arena.started(*_LEASE, "--queues", "elsewhere", name="bystander")
    _work_and_die(arena, "most", beside=())
    reconciler = arena.worker(command="reconciler", name="reconciler")
    _work_and_die(arena, "all", beside=(bystander,))
    arena.expect(reconciler.is_alive, "the reconciler goes on")
    arena.started(*_LEASE)
    arena.wait_until(lambda: arena.unfinished() == 0, "every job is done")
    causes = arena.query("SELECT DISTINCT outcome FROM faultline.attempts_log")
    arena.expect(causes == [("worker_lost",)], f"jobs came back as {causes}, not as worker_lost")


def _work_and_die(arena: Arena, name: str, *, beside: Sequence[Witness]) -> None:
    """Kill a crew in the middle of its jobs, together with those beside it; the jobs come back."""
    crew = [arena.started(*_LEASE) for _ in range(_CREW)]
    jobs = min(arena.settings.jobs, 4 * _CREW)
    for number in range(jobs):
        arena.submit(pay, key=f"{name}-{number}", number=number, plan={"1": "hang@start"})
    arena.wait_until(lambda: _hanging(arena) == jobs, "every job has begun")
    for worker in (*crew, *beside):
        worker.send(signal.SIGKILL)
    for worker in (*crew, *beside):
        worker.kill()
        arena.inject("kill", worker.name)
    arena.wait_until(lambda: _hanging(arena) == 0, "the jobs are queued again")


def _hanging(arena: Arena) -> int:
    return arena.count(
        "SELECT count(*) FROM faultline.jobs WHERE state = 'running' AND fencing_token = 1"
    )
