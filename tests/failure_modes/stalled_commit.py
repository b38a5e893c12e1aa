"""A commit that is under way when its lease runs out: the moment that FM_004 is about."""

from __future__ import annotations

from faultline.model import Claim
from faultline.postgres.sessions import run
from faultline.statements import protocol
from tests.processes.observed_database import ObservedDatabase
from tests.races.stepper import Actor, Connect, claimed, expire

PAY = "INSERT INTO app.payments (job_id, token) VALUES (%s, %s) RETURNING token"
# Only the worker's own transaction sees this lease alive, so the fence lets it through however long it
# takes to get there. Everybody else sees what was committed before: a lease that has run out.
STILL_ALIVE = (
    "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() + interval '10 minutes'"
    " WHERE id = %s RETURNING id"
)


def stalled_commit(database: ObservedDatabase, connect: Connect) -> tuple[Actor, Claim]:
    """The worker has written and fenced, its COMMIT is still to come, and its lease has run out."""
    (claim,) = claimed(database.conn, worker="slow")
    expire(database.conn, claim)
    worker = Actor(connect)
    worker.begin()
    worker.run(STILL_ALIVE, (claim.job_id,))
    worker.run(PAY, (claim.job_id, claim.fencing_token))
    worker.run(protocol.commit(claim))
    expired = (
        "FROM faultline.jobs WHERE state = 'running' AND lease_expires_at <= clock_timestamp()"
    )
    assert database.count(expired) == 1
    return worker, claim


def run_what_is_queued(database: ObservedDatabase) -> int:
    """Another worker takes whatever is there, pays and commits; how many jobs that were."""
    claims = run(
        database.conn, protocol.claim("next", ["default"], batch_size=10, lease_seconds=600)
    )
    for claim in claims:
        with database.conn.transaction():
            database.conn.execute(PAY, [claim.job_id, claim.fencing_token])
            run(database.conn, protocol.commit(claim))
    return len(claims)
