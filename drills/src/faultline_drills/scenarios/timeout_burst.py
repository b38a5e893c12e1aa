"""Many jobs exceed their timeout, or their leases, at once."""

from __future__ import annotations

from faultline_drills.context import DrillContext
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay_by_hand, time_out


@scenario(shows=("timeouts", "retries", "commits"))
def timeout_burst(drill: DrillContext) -> None:
    """All jobs of a burst hang at once, and exceed their task's timeout.

    Each attempt must be ended, recorded as failed, and retried. A hanging handler costs its own
    time and one attempt, and must not harm other jobs.
    """
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


@scenario(shows=("stops", "takeovers", "stale_rejections", "commits"), breaks_naive=True)
def lease_expiry_burst(drill: DrillContext) -> None:
    """Many leases expire during the work, and two workers run the same jobs.

    A worker is stopped for longer than its leases, and resumes while others run the same jobs. Both
    commit within moments of each other; only the higher token may succeed.
    """
    jobs, lease = drill.settings.jobs, drill.settings.lease_seconds
    slots = ("--concurrency", str(jobs))
    for number in range(jobs):
        # Long enough that no attempt has finished when the others start.
        drill.submit(pay_by_hand, number=number, work_seconds=2 * lease)
    # With full slots and no reconciler, its leases are not reconciled while it runs.
    late = drill.worker("--no-self-fencing", "--no-reconciler", *slots, name="late")
    drill.wait_until(lambda: len(late.events_named("execution_started")) >= jobs, "the work")
    late.stop()
    drill.inject("stop", late.name)
    for _ in range(drill.settings.workers):
        drill.worker(*slots, "--lease-seconds", "600")  # so that they keep what they take over
    drill.wait_until(
        lambda: (
            drill.count(
                "SELECT count(*) FROM faultline.jobs WHERE state = 'running' AND fencing_token = 2"
            )
            == jobs
        ),
        "the takeover",
    )
    late.resume()
    drill.wait_until(
        lambda: len(late.events_named("worker_exit")) >= jobs, "the end of its attempts"
    )
