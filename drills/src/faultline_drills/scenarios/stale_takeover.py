"""A worker is stopped in the middle of its jobs, and comes back after others have finished them.

Every thread of it stands still, heartbeats included, as in a long pause for garbage or a frozen
virtual machine. Its leases run out, its jobs are done elsewhere, and then it wakes up and carries on
where it was, with nothing in its memory to tell it that time has passed. Self-fencing is off: only
the database stands between it and a second payment.
"""

from __future__ import annotations

from typing import Any

from faultline.task import Task
from faultline_drills.arena import Arena
from faultline_drills.lateness import stalled_worker, wake_to_the_end
from faultline_drills.scenario import scenario
from faultline_drills.workload import note, pay

SHOWS = ("stops", "takeovers", "stale_rejections", "commits")


@scenario(shows=SHOWS, breaks_naive=True)
def stale_takeover(arena: Arena) -> None:
    _stall_and_come_back(arena, pay)


@scenario(shows=SHOWS, breaks_naive=True)
def stale_batch(arena: Arena) -> None:
    """A stopped worker comes back with jobs that have no writes of their own, and enters them in a batch.

    Others have finished them long ago. The batch is answered job by job, and what the worker reports
    must be what it was answered.
    """
    _stall_and_come_back(arena, note)


def _stall_and_come_back(arena: Arena, task: Task[Any, Any]) -> None:
    jobs = arena.settings.jobs
    for number in range(jobs):
        arena.submit(task, number=number, plan={"1": "stop@start"})
    late = stalled_worker(arena)
    for number in range(arena.settings.workers):
        arena.worker(name=f"steady-{number + 1}")
    arena.wait_until(
        lambda: arena.count("SELECT count(*) FROM faultline.ledger") >= jobs, "the takeover"
    )
    wake_to_the_end(arena, late, attempts=jobs)
