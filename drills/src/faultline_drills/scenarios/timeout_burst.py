"""A burst of jobs whose work outlasts what it was given."""

from __future__ import annotations

from faultline_drills.arena import Arena
from faultline_drills.scenario import scenario
from faultline_drills.workload import pay_by_hand, time_out


@scenario(shows=("timeouts", "retries", "commits"))
def timeout_burst(arena: Arena) -> None:
    """All jobs of a burst hang at once, and run out of the time that their task has.

    Each is ended, reported as failed and tried again: a hanging handler costs its own time and one
    attempt, and no other job's.
    """
    jobs = arena.settings.jobs
    for number in range(jobs):
        arena.submit(time_out, number=number, plan={"1": "hang@start"})
    for _ in range(arena.settings.workers):
        # The handlers' time is to run out, and not their leases.
        arena.worker("--concurrency", str(jobs), "--lease-seconds", "600")
    arena.wait_until(
        lambda: arena.count("SELECT count(*) FROM faultline.ledger") == jobs, "the end of the burst"
    )
    timeouts = arena.query(
        "SELECT job_id, attempt FROM faultline.attempts_log WHERE error LIKE 'AttemptTimeout%%'"
    )
    for job, attempt in timeouts:
        arena.inject("timeout", str(job), attempt=attempt)
    arena.expect(len(timeouts) >= jobs, f"{len(timeouts)} of {jobs} ran out of time")
    arena.expect(
        all(worker.is_alive for worker in arena.workers), "no worker minds a handler that hangs"
    )


@scenario(shows=("stops", "takeovers", "stale_rejections", "commits"), breaks_naive=True)
def lease_expiry_burst(arena: Arena) -> None:
    """A whole burst of leases runs out in the middle of the work, and it is done twice at once.

    The worker is stopped for longer than its leases last, and goes on while others are in the middle
    of the very same jobs. Both sides believe in what they do, and both come to their commit within
    moments of each other. The one with the higher token is right.
    """
    jobs, lease = arena.settings.jobs, arena.settings.lease_seconds
    slots = ("--concurrency", str(jobs))
    for number in range(jobs):
        # Long enough that nobody has finished when the others, or we, are a moment late.
        arena.submit(pay_by_hand, number=number, work_seconds=2 * lease)
    # All its slots are taken and it does not reconcile: nobody takes its leases while it is awake.
    late = arena.worker("--no-self-fencing", "--no-reconciler", *slots, name="late")
    arena.wait_until(lambda: len(late.heard("execution_started")) >= jobs, "the work")
    late.stop()
    arena.inject("stop", late.name)
    for _ in range(arena.settings.workers):
        arena.worker(*slots, "--lease-seconds", "600")  # what they take over they keep
    arena.wait_until(
        lambda: (
            arena.count(
                "SELECT count(*) FROM faultline.jobs WHERE state = 'running' AND fencing_token = 2"
            )
            == jobs
        ),
        "the takeover",
    )
    late.resume()
    arena.wait_until(lambda: len(late.heard("worker_exit")) >= jobs, "the late worker's end")
