"""A stale worker calls an external system after its successor did.

Faultline cannot undo a call, nor keep a stalled worker from making one. But every claim has a
higher token: an external store that remembers the highest token must refuse the late call, as
PostgreSQL refuses the late commit.
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
    # Not every attempt gets that far: a resumed worker ends some of them first.
    late_calls = [call for call in drill.external_store.calls if call.token == 1]
    drill.expect(
        not any(call.accepted for call in late_calls), "the external store accepted a late call"
    )
