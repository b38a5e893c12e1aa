"""Two transactions that nobody ends: a stranger's that has locked a job, and one of a worker that froze.

A forgotten psql session holds one job's row and an old snapshot. Workers step over that job, and all
others flow. A worker is stopped in the middle of its own transaction, with its job locked against
everyone: its session carries a limit on idling, ends itself, and sets the job free. When the worker
wakes up its session is gone, and its report about the job is refused.
"""

from __future__ import annotations

from faultline.postgres.sessions import connect
from faultline_drills.context import DrillContext
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay


@scenario(shows=("holders", "stops", "takeovers", "stale_rejections", "commits"), breaks_naive=True)
def idle_in_transaction_holder(drill: DrillContext) -> None:
    frozen_job = drill.submit(pay, number=0, parts=2, plan={"1": "stop@half"})
    # With one slot, which is taken: a claim that it had sent before it froze could get the next job.
    late = drill.worker("--no-self-fencing", "--concurrency", "1", name="late")
    drill.wait_until(lambda: late.is_stopped, "the stall", by=late)
    drill.inject("stop", late.name)
    held_job = drill.submit(pay, number=1)
    with connect(drill.url, application_name="a stranger") as stranger, stranger.transaction():
        stranger.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        stranger.execute("SELECT FROM faultline.jobs WHERE id = %s FOR UPDATE", [held_job])
        drill.inject("holder", "a stranger")
        for number in range(2, 2 + drill.settings.jobs):
            drill.submit(pay, number=number)
        for _ in range(drill.settings.workers):
            drill.worker()
        drill.wait_until(lambda: drill.unfinished() == 1, "the end of all jobs but one")
        drill.expect(
            drill.wait_for_state(frozen_job, "succeeded", "failed") == "succeeded",
            "the job of the worker that froze did not succeed",
        )
        state = drill.wait_for_state(held_job, "queued", "running")
        drill.expect(state == "queued", f"the job that a stranger has locked is {state}")
    drill.wait_for_state(held_job, "succeeded")
    late.resume()
    drill.wait_until(lambda: bool(late.events_named("worker_exit")), "the late worker's end")
