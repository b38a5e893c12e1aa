"""A commit whose lease expires before its COMMIT: the situation of FM_004."""

from __future__ import annotations

from faultline.model import Claim
from faultline.postgres.sessions import run
from faultline.statements import protocol
from tests.processes.observed_database import ObservedDatabase
from tests.races.stepper import Actor, Connect, claimed, expire

PAY = "INSERT INTO app.payments (job_id, token) VALUES (%s, %s) RETURNING token"
# Only the worker's own transaction sees this longer lease, so its fence passes at any speed. All other
# sessions see the expired one.
STILL_ALIVE = (
    "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() + interval '10 minutes'"
    " WHERE id = %s RETURNING id"
)


def stalled_commit(database: ObservedDatabase, connect: Connect) -> tuple[Actor, Claim]:
    """The worker has passed the fence; its lease expires before its COMMIT."""
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


def run_queued_jobs(database: ObservedDatabase) -> int:
    """Another worker claims all queued jobs, pays and commits; their number."""
    claims = run(
        database.conn, protocol.claim("next", ["default"], batch_size=10, lease_seconds=600)
    )
    for claim in claims:
        with database.conn.transaction():
            database.conn.execute(PAY, [claim.job_id, claim.fencing_token])
            run(database.conn, protocol.commit(claim))
    return len(claims)
