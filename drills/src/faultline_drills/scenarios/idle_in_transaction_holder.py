"""Two transactions stay open: a psql session's and a stopped worker's.

The psql session locks one job's row: workers must skip that job, and run all others. A worker is
stopped inside its transaction, with its job locked: PostgreSQL must end its session by the idle
limit that it carries, so that another worker can claim the job. When the stopped worker resumes,
its report must be refused.
"""

from __future__ import annotations

from faultline.postgres.sessions import connect
from faultline_drills.context import DrillContext
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay


@scenario(
    shows=("lock_holders", "stops", "takeovers", "stale_rejections", "commits"), breaks_naive=True
)
def idle_in_transaction_holder(drill: DrillContext) -> None:
    frozen_job = drill.submit(pay, number=0, parts=2, plan={"1": "stop@half"})
    # One slot only, or a claim sent before the stop could get the next job.
    late = drill.worker("--no-self-fencing", "--concurrency", "1", name="late")
    drill.wait_until(lambda: late.is_stopped, "the stall", by=late)
    drill.inject("stop", late.name)
    held_job = drill.submit(pay, number=1)
    with connect(drill.url, application_name="psql") as other, other.transaction():
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT FROM faultline.jobs WHERE id = %s FOR UPDATE", [held_job])
        drill.inject("lock_holder", "psql")
        for number in range(2, 2 + drill.settings.jobs):
            drill.submit(pay, number=number)
        for _ in range(drill.settings.workers):
            drill.worker()
        drill.wait_until(lambda: drill.unfinished() == 1, "the end of all jobs but one")
        drill.expect(
            drill.wait_for_state(frozen_job, "succeeded", "failed") == "succeeded",
            "the job of the stopped worker did not succeed",
        )
        state = drill.wait_for_state(held_job, "queued", "running")
        drill.expect(state == "queued", f"the job that another session has locked is {state}")
    drill.wait_for_state(held_job, "succeeded")
    late.resume()
    drill.wait_until(lambda: bool(late.events_named("worker_exit")), "the end of its attempt")
