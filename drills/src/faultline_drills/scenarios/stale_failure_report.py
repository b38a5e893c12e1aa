"""A stalled worker resumes and reports a failure of a job it has lost.

A failure changes the job's state and queues it again. Accepted from a stale worker, it would queue
a job that another worker runs or has finished. It must be fenced like a commit, and refused.
"""

from __future__ import annotations

from faultline_drills.context import DrillContext
from faultline_drills.processes.stalled_worker import resume_until_done, stalled_worker
from faultline_drills.scenario import scenario
from faultline_drills.workload.plan import PlannedFailure
from faultline_drills.workload.tasks import pay


@scenario(shows=("stops", "takeovers", "stale_rejections", "commits"), breaks_naive=True)
def stale_failure_report(drill: DrillContext) -> None:
    jobs, slow = drill.settings.jobs, drill.settings.jobs // 2
    work_seconds = 2 * drill.settings.lease_seconds
    for number in range(jobs):
        work = work_seconds if number < slow else 0.0
        drill.submit(pay, number=number, plan={"1": "falter@start"}, work_seconds=work)
    late = stalled_worker(drill)
    for _ in range(drill.settings.workers):
        drill.worker("--concurrency", str(jobs))
    drill.wait_until(
        lambda: (
            drill.count(
                "SELECT count(*) FROM faultline.jobs WHERE fencing_token > 1"
                " AND (state = 'succeeded'"
                "      OR (state = 'running' AND (payload ->> 'work_seconds')::float8 > 0))"
            )
            == jobs
        ),
        "the takeover",
    )
    resume_until_done(drill, late, attempts=jobs)
    # By what it says: without a fence it is recorded under the holder's token. And a holder that was held
    # up for longer than its lease rightly has a failure of its own.
    again = drill.count(
        "SELECT count(*) FROM faultline.attempts_log WHERE outcome = 'failed' AND error LIKE %s",
        [f"{PlannedFailure.__name__}%"],
    )
    drill.expect(again == 0, f"{again} late failures were taken for the holder's")
