"""A transaction outlives its lease, and nobody has taken the job over yet.

The handler opens its transaction, writes, and takes its time until its lease has run out; there is no
other worker, and no reconciler. `now()` of that transaction still says that the lease holds, because
it stands still from the first statement on. The fence asks the clock that moves.
"""

from __future__ import annotations

import psycopg

from faultline.errors import StaleLease
from faultline.postgres.sessions import connect, run
from faultline.statements import protocol
from faultline_drills.arena import Arena
from faultline_drills.history import Phase, Verb
from faultline_drills.scenario import scenario
from faultline_drills.workload import pay

_LAPSED = "SELECT FROM faultline.jobs WHERE id = %s AND lease_expires_at < clock_timestamp()"


@scenario(shows=("slow_transactions", "refusals", "commits"), breaks_naive=True)
def slow_transaction(arena: Arena) -> None:
    arena.submit(pay, number=1)
    take = protocol.claim("slow", ["default"], batch_size=1, lease_seconds=0.3)
    (claim,) = run(arena.conn, take)
    job = str(claim.job_id)
    attempt = arena.history.invoke("slow", Verb.ATTEMPT, job=job, token=claim.fencing_token)
    with connect(arena.url, application_name="slow") as conn:
        try:
            with conn.transaction():
                conn.execute(
                    "INSERT INTO drill.effects (job_id, token) VALUES (%s, %s)",
                    [claim.job_id, claim.fencing_token],
                )
                arena.inject("slow_transaction", "slow")
                arena.wait_for_row(_LAPSED, [claim.job_id], "the end of the lease")
                run(conn, protocol.commit(claim))
        except StaleLease as stale:
            arena.history.end(attempt, Phase.FAIL, reason=stale.reason)
            arena.injected["refusal"] += 1
        except psycopg.Error:
            arena.history.end(attempt, Phase.INFO)
        else:
            arena.history.end(attempt, Phase.OK)
