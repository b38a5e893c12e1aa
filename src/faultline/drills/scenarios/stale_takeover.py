"""A worker is stopped in the middle of its jobs, and comes back after others have finished them.

Every thread of it stands still, heartbeats included, as in a long pause for garbage or a frozen
virtual machine. Its leases run out, its jobs are done elsewhere, and then it wakes up and carries on
where it was, with nothing in its memory to tell it that time has passed. Self-fencing is off: only
the database stands between it and a second payment.
"""

from __future__ import annotations

from faultline.drills.arena import Arena
from faultline.drills.scenario import scenario
from faultline.drills.workload import pay


@scenario(shows=("stops", "takeovers", "stale_rejections", "commits"), breaks_naive=True)
def stale_takeover(arena: Arena) -> None:
    jobs = arena.settings.jobs
    for number in range(jobs):
        arena.submit(pay, number=number, plan={"1": "stop@start"})
    late = arena.worker("--no-self-fencing", "--concurrency", str(jobs), name="late")
    arena.wait_until(lambda: late.is_stopped, "the stall")
    arena.inject("stop", late.name)
    for number in range(arena.settings.workers):
        arena.worker(name=f"steady-{number + 1}")
    arena.wait_until(
        lambda: arena.count("SELECT count(*) FROM faultline.ledger") == jobs, "the takeover"
    )
    late.resume()
    # Its other jobs carry the same plan: it stops itself again until each has had its turn.
    arena.wait_until(lambda: _woken_to_its_end(arena), "the late worker's end", timeout_seconds=30)


def _woken_to_its_end(arena: Arena) -> bool:
    late = arena.workers[0]
    if late.is_stopped:
        late.resume()
    return len(late.heard("worker_exit")) >= arena.settings.jobs
