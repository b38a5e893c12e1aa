"""A job is taken over between a step that it has committed and the payment that was to follow.

The step was fenced and stands: it was the holder's at that time. The new holder takes the step again,
under its own token. The old one wakes up with its step behind it, while the new one is still at work
or after it has paid, and may neither pay nor take another step.
"""

from __future__ import annotations

import signal

from faultline_drills.arena import Arena
from faultline_drills.lateness import stalled_worker, wake_to_the_end
from faultline_drills.scenario import scenario
from faultline_drills.workload import step_and_pay

_LEASES = 30  # of the drill's own


@scenario(shows=("stops", "takeovers", "stale_rejections", "commits"), breaks_naive=True)
def fenced_step(arena: Arena) -> None:
    jobs, busy = arena.settings.jobs, arena.settings.jobs // 2
    for number in range(jobs):
        plan = {"1": "stop@half"} | ({"2": "hang@half"} if number < busy else {})
        arena.submit(step_and_pay, number=number, plan=plan)
    late = stalled_worker(arena)
    # It keeps what it has taken over: a lease of its own that ran out would make this another story.
    lease = ("--lease-seconds", str(_LEASES * arena.settings.lease_seconds))
    options = ("--concurrency", str(jobs), "--drain-seconds", "0.1", *lease)
    holder = arena.worker(*options, name="holder")
    arena.wait_until(
        lambda: (
            arena.count(
                "SELECT count(*) FROM drill.effects WHERE token = 2"
                " AND (NOT is_step OR job_id IN (SELECT id FROM faultline.jobs WHERE state = 'running'))"
            )
            == jobs
        ),
        "the takeover",
    )
    wake_to_the_end(arena, late, attempts=jobs)
    holder.send(signal.SIGTERM)  # what hangs is handed back, and finished by others
    early = arena.count("SELECT count(*) FROM drill.effects WHERE is_step AND token = 1")
    arena.expect(early > 0, "a step of the late worker's stands")
    paid = arena.count("SELECT count(*) FROM drill.effects WHERE NOT is_step AND token = 1")
    arena.expect(paid == 0, f"{paid} payments of the late worker's stand")
