"""A job is taken over between its fenced step and its payment.

The step was committed by its holder at that time, and stands. The new holder must take the step
again, under its own token. The old one resumes while the new one works or after it has paid, and
may neither pay nor commit another step.
"""

from __future__ import annotations

import signal

from faultline_drills.context import DrillContext
from faultline_drills.processes.stalled_worker import resume_until_done, stalled_worker
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import step_and_pay

_LEASES = 30  # times the drill's lease


@scenario(shows=("stops", "takeovers", "stale_rejections", "commits"), breaks_naive=True)
def takeover_after_fenced_step(drill: DrillContext) -> None:
    jobs, busy = drill.settings.jobs, drill.settings.jobs // 2
    for number in range(jobs):
        plan = {"1": "stop@half"} | ({"2": "hang@half"} if number < busy else {})
        drill.submit(step_and_pay, number=number, plan=plan)
    late = stalled_worker(drill)
    # A long lease, so that the holder keeps the jobs that it has taken over.
    lease = ("--lease-seconds", str(_LEASES * drill.settings.lease_seconds))
    options = ("--concurrency", str(jobs), "--drain-seconds", "0.1", *lease)
    holder = drill.worker(*options, name="holder")
    drill.wait_until(
        lambda: (
            drill.count(
                "SELECT count(*) FROM drill.effects WHERE token = 2"
                " AND (NOT is_step OR job_id IN (SELECT id FROM faultline.jobs WHERE state = 'running'))"
            )
            == jobs
        ),
        "the takeover",
    )
    resume_until_done(drill, late, attempts=jobs)
    holder.send(signal.SIGTERM)  # hanging jobs are released, and run by others
    early = drill.count("SELECT count(*) FROM drill.effects WHERE is_step AND token = 1")
    drill.expect(early > 0, "no step of the late worker was committed")
    paid = drill.count("SELECT count(*) FROM drill.effects WHERE NOT is_step AND token = 1")
    drill.expect(paid == 0, f"{paid} payments of the late worker were committed")
