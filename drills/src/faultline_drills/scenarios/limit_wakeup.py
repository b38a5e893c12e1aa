"""A job that waits for a place starts when one is free, whatever frees it.

First no reconciler runs: each end of a job must start the next one. Then the holder of the only place
commits in a REPEATABLE READ transaction, which leaves the next job to the reconciler's repair, and dies:
that job must start all the same.
"""

from __future__ import annotations

from contextlib import closing
from typing import LiteralString

from faultline.model import Claim
from faultline.postgres.sessions import Connection, connect, run
from faultline.statements import limits, protocol
from faultline_drills.context import DrillContext
from faultline_drills.judging.measures import quantile
from faultline_drills.recording.history import Phase, Verb
from faultline_drills.scenario import scenario
from faultline_drills.waiting import wait_until
from faultline_drills.workload.tasks import note

LIMIT = "task:drill.note"
_CLERK = "clerk"
_SECONDS = 15.0  # the repair takes one or two
_WAITING: LiteralString = "SELECT count(*) FROM faultline.waiting_jobs"
# From each end of a job to the next start: with one place, they alternate.
_GAPS: LiteralString = """
    SELECT extract(epoch FROM at - ended)::float8 FROM (
        SELECT at, after, lag(at) OVER (ORDER BY order_number) AS ended,
               lag(after) OVER (ORDER BY order_number) AS former
        FROM drill.transitions WHERE after IN ('running', 'succeeded')) AS t
    WHERE after = 'running' AND former = 'succeeded'
"""


@scenario(shows=("waits", "repaired_lines", "commits"))
def limit_wakeup(drill: DrillContext) -> None:
    run(drill.conn, limits.set_limit(LIMIT, max_running=1))
    jobs = drill.settings.jobs * 2
    for number in range(jobs):
        drill.submit(note, number=number)
    worker = drill.started_worker("--no-reconciler", "--concurrency", "4")
    if not wait_until(lambda: drill.unfinished() == 0, timeout_seconds=_SECONDS):
        drill.expect(False, "jobs wait for a free place while no reconciler runs")
        return
    drill.inject("wait", "line", jobs=jobs - 1)
    gaps = [float(gap) for (gap,) in drill.query(_GAPS)]
    if gaps:
        drill.measured["p95_milliseconds_to_the_next_start"] = round(1000 * quantile(gaps, 0.95))
    drill.stop_workers([worker])
    _leave_it_to_the_repair(drill)


def _leave_it_to_the_repair(drill: DrillContext) -> None:
    held = drill.submit(note, number=-1)
    take = protocol.claim(_CLERK, ["default"], batch_size=1, lease_seconds=600)
    with closing(connect(drill.url, application_name="faultline drill clerk")) as clerk:
        (claim,) = run(clerk, take)
        drill.expect(claim.job_id == held, "a job that waited is left over")
        next_job = drill.submit(note, number=-2)
        drill.started_worker(name="repairing")
        drill.wait_until(lambda: drill.count(_WAITING) == 1, "a job that waits")
        attempt = drill.history.invoke(
            _CLERK, Verb.ATTEMPT, job=str(claim.job_id), token=claim.fencing_token
        )
        _commit_above_read_committed(clerk, claim)
        drill.history.end(attempt, Phase.OK)
    drill.inject("repaired_line", "reconciler")
    started = "SELECT count(*) FROM faultline.ledger WHERE job_id = %s"
    drill.expect(
        wait_until(lambda: drill.count(started, [next_job]) == 1, timeout_seconds=_SECONDS),
        "a job waits for a place that was freed above READ COMMITTED",
    )


def _commit_above_read_committed(clerk: Connection, claim: Claim) -> None:
    with clerk.transaction():
        clerk.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        run(clerk, protocol.assert_fence(claim))
        run(clerk, protocol.commit(claim))
