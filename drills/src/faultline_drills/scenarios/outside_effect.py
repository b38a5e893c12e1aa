"""A late worker calls a system outside of the database, after its successor has called it.

Faultline cannot take back a call, and cannot keep a stalled worker from making one. What it can do is
give every claim a higher token: an outside system that remembers the highest one it has seen refuses
the late call, as the database refuses the late commit.
"""

from __future__ import annotations

from faultline_drills.arena import Arena
from faultline_drills.lateness import stalled_worker, wake_to_the_end
from faultline_drills.scenario import scenario
from faultline_drills.workload import pay


@scenario(
    shows=("stops", "takeovers", "outside_refusals", "stale_rejections", "commits"),
    breaks_naive=True,
)
def outside_effect(arena: Arena) -> None:
    jobs = arena.settings.jobs
    for number in range(jobs):
        arena.submit(pay, number=number, plan={"1": "stop@start"}, outside=True)
    late = stalled_worker(arena)
    for _ in range(arena.settings.workers):
        arena.worker()
    arena.wait_until(
        lambda: arena.count("SELECT count(*) FROM faultline.ledger") >= jobs, "the takeover"
    )
    wake_to_the_end(arena, late, attempts=jobs)
    # Not every attempt gets as far: a worker that wakes late enough ends some of them first.
    late_calls = [call for call in arena.sink.calls if call.token == 1]
    arena.expect(not any(call.accepted for call in late_calls), "the outside refuses late calls")
