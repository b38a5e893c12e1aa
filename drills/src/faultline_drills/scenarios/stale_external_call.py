"""A late worker calls a system outside of the database, after its successor has called it.

Faultline cannot take back a call, and cannot keep a stalled worker from making one. What it can do is
give every claim a higher token: an outside system that remembers the highest one it has seen refuses
the late call, as the database refuses the late commit.
"""

from __future__ import annotations

from faultline_drills.context import DrillContext
from faultline_drills.processes.stalled_worker import resume_until_done, stalled_worker
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay


@scenario(
    shows=("stops", "takeovers", "external_refusals", "stale_rejections", "commits"),
    breaks_naive=True,
)
def stale_external_call(drill: DrillContext) -> None:
    jobs = drill.settings.jobs
    for number in range(jobs):
        drill.submit(pay, number=number, plan={"1": "stop@start"}, outside=True)
    late = stalled_worker(drill)
    for _ in range(drill.settings.workers):
        drill.worker()
    drill.wait_until(
        lambda: drill.count("SELECT count(*) FROM faultline.ledger") >= jobs, "the takeover"
    )
    resume_until_done(drill, late, attempts=jobs)
    # Not every attempt gets as far: a worker that wakes late enough ends some of them first.
    late_calls = [call for call in drill.external_store.calls if call.token == 1]
    drill.expect(not any(call.accepted for call in late_calls), "the outside refuses late calls")
