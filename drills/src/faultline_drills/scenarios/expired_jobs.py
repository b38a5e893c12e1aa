"""Jobs that have not started when they expire never start, and those that have do.

Jobs with an expiry wait while no worker runs, and their expiry passes. A job that was claimed before must
run again although its expiry has passed, jobs without an expiry must run, and the others must fail with
the reason `expired`: when a worker meets them, or when the reconciler finds them in a queue that no worker
serves.
"""

from __future__ import annotations

from typing import LiteralString

from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline_drills.context import DrillContext
from faultline_drills.scenario import scenario
from faultline_drills.waiting import wait_until
from faultline_drills.workload.tasks import note, pay

_NEVER_SERVED = "unserved"
_HOUR_SECONDS = 3_600.0
_SECONDS = 15.0  # the reconciler takes one or two
_EXPIRE: LiteralString = """
    UPDATE faultline.jobs SET expires_at = clock_timestamp() - interval '1 second'
    WHERE expires_at IS NOT NULL RETURNING id
"""
_UNFINISHED: LiteralString = """
    SELECT count(*) FROM faultline.jobs WHERE queue = %s AND state IN ('queued', 'running')
"""
_ENDS: LiteralString = """
    SELECT j.id, coalesce(j.failed_reason, j.state),
           EXISTS (SELECT FROM drill.transitions AS t WHERE t.job_id = j.id AND t.after = 'running')
    FROM faultline.jobs AS j
"""


@scenario(shows=("expirations", "commits", "dead_jobs"))
def expired_jobs(drill: DrillContext) -> None:
    begun = drill.submit(pay, number=0, expires_in=_HOUR_SECONDS)
    clerk = protocol.claim("clerk", ["default"], batch_size=1, lease_seconds=600)
    (claim,) = run(drill.conn, clerk)
    kept = [drill.submit(pay, number=number) for number in range(drill.settings.jobs)]
    for queue in ("default", _NEVER_SERVED):
        for number in range(drill.settings.jobs):
            drill.submit(note, queue=queue, number=number, expires_in=_HOUR_SECONDS)
    expired = {job_id for (job_id,) in drill.query(_EXPIRE)} - {begun}
    drill.inject("expiration", "postgres", jobs=len(expired))
    run(drill.conn, protocol.fail(claim, error="the clerk gave up"))
    worker = drill.started_worker("--no-reconciler")
    drill.wait_until(lambda: drill.count(_UNFINISHED, ["default"]) == 0, "the end of the jobs")
    drill.stop_workers([worker])
    drill.started_worker(name="reconciling")
    drill.expect(
        wait_until(lambda: drill.unfinished() == 0, timeout_seconds=_SECONDS),
        "an expired job waits for ever in a queue that no worker serves",
    )
    for job_id, ended, has_run in drill.query(_ENDS):
        if job_id in expired:
            drill.expect(not has_run, f"job {job_id} started after it had expired")
        else:
            what = "that had started before it expired" if job_id not in kept else "without expiry"
            drill.expect(ended == "succeeded", f"job {job_id}, {what}, ended as {ended}")
