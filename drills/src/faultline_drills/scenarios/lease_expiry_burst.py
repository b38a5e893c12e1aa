"""Many leases expire during the work, and two workers run the same jobs.

A worker is stopped for longer than its leases, and resumes while others run the same jobs. Both
commit within moments of each other; only the higher token may succeed.
"""

from __future__ import annotations

from faultline_drills.context import DrillContext
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay_by_hand


@scenario(shows=("stops", "takeovers", "stale_rejections", "commits"), breaks_naive=True)
def lease_expiry_burst(drill: DrillContext) -> None:
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
