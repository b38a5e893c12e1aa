"""One of a hundred jobs of a batch is taken over while its handler stands still.

The other ninety-nine leases hold. The worker resumes without knowing, and its transaction writes for all
of them. PostgreSQL must refuse all of it, and the worker must run the handler again without that job.
Self-fencing is off: PostgreSQL alone must find the stale job.
"""

from __future__ import annotations

from faultline_drills.context import DrillContext
from faultline_drills.processes.stalled_worker import stalled_worker
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay_in_batch

_JOBS = 100
_LONG_SECONDS = "600"  # a lease does not run out by itself here


@scenario(shows=("stops", "takeovers", "stale_rejections", "commits"), breaks_naive=True)
def stale_job_in_batch(drill: DrillContext) -> None:
    stale = drill.random.randrange(_JOBS)
    jobs = [
        drill.submit(
            pay_in_batch, number=number, plan={"1": "stop@start"} if number == stale else {}
        )
        for number in range(_JOBS)
    ]
    late = stalled_worker(drill, "--lease-seconds", _LONG_SECONDS)
    drill.expect(
        drill.count("SELECT count(*) FROM faultline.jobs WHERE state = 'running'") == _JOBS,
        "the worker does not hold all jobs of the batch",
    )
    drill.conn.execute(
        "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() WHERE id = %s",
        [jobs[stale]],
    )
    drill.worker(name="steady")
    drill.wait_until(
        lambda: drill.count("SELECT count(*) FROM faultline.ledger") == 1, "the takeover"
    )
    late.resume()
    drill.wait_until(
        lambda: len(late.events_named("worker_exit")) >= _JOBS, "the end of the batch", by=late
    )
