"""A commit that is under way when its lease runs out: the moment that FM_004 is about."""

from __future__ import annotations

from faultline.model import Claim
from faultline.postgres.sessions import run
from faultline.statements import protocol
from tests.processes.stage import Stage
from tests.races.stepper import Actor, Connect, claimed, expire

PAY = "INSERT INTO stage.payments (job_id, token) VALUES (%s, %s) RETURNING token"
# Only the worker's own transaction sees this lease alive, so the fence lets it through however long it
# takes to get there. Everybody else sees what was committed before: a lease that has run out.
STILL_ALIVE = (
    "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() + interval '10 minutes'"
    " WHERE id = %s RETURNING id"
)


def stalled_commit(stage: Stage, connect: Connect) -> tuple[Actor, Claim]:
    """The worker has written and fenced, its COMMIT is still to come, and its lease has run out."""
    (claim,) = claimed(stage.conn, worker="slow")
    expire(stage.conn, claim)
    worker = Actor(connect)
    worker.begin()
    worker.run(STILL_ALIVE, (claim.job_id,))
    worker.run(PAY, (claim.job_id, claim.fencing_token))
    worker.run(protocol.commit(claim))
    expired = (
        "FROM faultline.jobs WHERE state = 'running' AND lease_expires_at <= clock_timestamp()"
    )
    assert stage.count(expired) == 1
    return worker, claim


def run_what_is_queued(stage: Stage) -> int:
    """Another worker takes whatever is there, pays and commits; how many jobs that were."""
    claims = run(stage.conn, protocol.claim("next", ["default"], batch_size=10, lease_seconds=600))
    for claim in claims:
        with stage.conn.transaction():
            stage.conn.execute(PAY, [claim.job_id, claim.fencing_token])
            run(stage.conn, protocol.commit(claim))
    return len(claims)
