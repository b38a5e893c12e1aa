"""All jobs of a burst hang at once, and exceed their task's timeout.

Each attempt must be ended, recorded as failed, and retried. A hanging handler costs its own
time and one attempt, and must not harm other jobs.
"""

from __future__ import annotations

from faultline_drills.context import DrillContext
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import time_out


@scenario(shows=("timeouts", "retries", "commits"))
def timeout_burst(drill: DrillContext) -> None:
    jobs = drill.settings.jobs
    for number in range(jobs):
        drill.submit(time_out, number=number, plan={"1": "hang@start"})
    for _ in range(drill.settings.workers):
        # The timeouts must end the handlers, not their leases.
        drill.worker("--concurrency", str(jobs), "--lease-seconds", "600")
    drill.wait_until(
        lambda: drill.count("SELECT count(*) FROM faultline.ledger") == jobs, "the end of the burst"
    )
    timeouts = drill.query(
        "SELECT job_id, attempt FROM faultline.attempts_log WHERE error LIKE 'AttemptTimeout%%'"
    )
    for job, attempt in timeouts:
        drill.inject("timeout", str(job), attempt=attempt)
    drill.expect(len(timeouts) >= jobs, f"{len(timeouts)} of {jobs} jobs timed out")
    drill.expect(
        all(worker.is_alive for worker in drill.workers),
        "a worker ended because of a hanging handler",
    )
