"""A burst of jobs whose work outlasts what it was given."""

from __future__ import annotations

from faultline_drills.context import DrillContext
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay_by_hand, time_out


@scenario(shows=("timeouts", "retries", "commits"))
def timeout_burst(drill: DrillContext) -> None:
    """All jobs of a burst hang at once, and run out of the time that their task has.

    Each is ended, reported as failed and tried again: a hanging handler costs its own time and one
    attempt, and no other job's.
    """
    jobs = drill.settings.jobs
    for number in range(jobs):
        drill.submit(time_out, number=number, plan={"1": "hang@start"})
    for _ in range(drill.settings.workers):
        # The handlers' time is to run out, and not their leases.
        drill.worker("--concurrency", str(jobs), "--lease-seconds", "600")
    drill.wait_until(
        lambda: drill.count("SELECT count(*) FROM faultline.ledger") == jobs, "the end of the burst"
    )
    timeouts = drill.query(
        "SELECT job_id, attempt FROM faultline.attempts_log WHERE error LIKE 'AttemptTimeout%%'"
    )
    for job, attempt in timeouts:
        drill.inject("timeout", str(job), attempt=attempt)
    drill.expect(len(timeouts) >= jobs, f"{len(timeouts)} of {jobs} ran out of time")
    drill.expect(
        all(worker.is_alive for worker in drill.workers), "no worker minds a handler that hangs"
    )


@scenario(shows=("stops", "takeovers", "stale_rejections", "commits"), breaks_naive=True)
def lease_expiry_burst(drill: DrillContext) -> None:
    """A whole burst of leases runs out in the middle of the work, and it is done twice at once.

    The worker is stopped for longer than its leases last, and goes on while others are in the middle
    of the very same jobs. Both sides believe in what they do, and both come to their commit within
    moments of each other. The one with the higher token is right.
    """
    jobs, lease = drill.settings.jobs, drill.settings.lease_seconds
    slots = ("--concurrency", str(jobs))
    for number in range(jobs):
        # Long enough that nobody has finished when the others, or we, are a moment late.
        drill.submit(pay_by_hand, number=number, work_seconds=2 * lease)
    # All its slots are taken and it does not reconcile: nobody takes its leases while it is awake.
    late = drill.worker("--no-self-fencing", "--no-reconciler", *slots, name="late")
    drill.wait_until(lambda: len(late.events_named("execution_started")) >= jobs, "the work")
    late.stop()
    drill.inject("stop", late.name)
    for _ in range(drill.settings.workers):
        drill.worker(*slots, "--lease-seconds", "600")  # what they take over they keep
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
    drill.wait_until(lambda: len(late.events_named("worker_exit")) >= jobs, "the late worker's end")
