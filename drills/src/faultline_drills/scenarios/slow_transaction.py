"""A transaction outlives its lease, and no worker takes the job over.

The handler opens its transaction, writes, and commits after its lease has expired; there is no
other worker and no reconciler. In that transaction `now()` is still before the expiry, because it
stands still. The fence must read the moving clock, and refuse the commit.
"""

from __future__ import annotations

import psycopg

from faultline.errors import StaleLease
from faultline.postgres.sessions import connect, run
from faultline.statements import protocol
from faultline_drills.context import DrillContext
from faultline_drills.recording.history import Phase, Verb
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay

_LAPSED = "SELECT FROM faultline.jobs WHERE id = %s AND lease_expires_at < clock_timestamp()"


@scenario(shows=("slow_transactions", "refusals", "commits"), breaks_naive=True)
def slow_transaction(drill: DrillContext) -> None:
    drill.submit(pay, number=1)
    take = protocol.claim("slow", ["default"], batch_size=1, lease_seconds=0.3)
    (claim,) = run(drill.conn, take)
    job = str(claim.job_id)
    attempt = drill.history.invoke("slow", Verb.ATTEMPT, job=job, token=claim.fencing_token)
    with connect(drill.url, application_name="slow") as conn:
        try:
            with conn.transaction():
                conn.execute(
                    "INSERT INTO drill.effects (job_id, token) VALUES (%s, %s)",
                    [claim.job_id, claim.fencing_token],
                )
                drill.inject("slow_transaction", "slow")
                drill.wait_for_row(_LAPSED, [claim.job_id], "the end of the lease")
                run(conn, protocol.commit(claim))
        except StaleLease as stale:
            drill.history.end(attempt, Phase.FAIL, reason=stale.reason)
            drill.injected["refusal"] += 1
        except psycopg.Error:
            drill.history.end(attempt, Phase.INFO)
        else:
            drill.history.end(attempt, Phase.OK)
