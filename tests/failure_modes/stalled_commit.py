"""A commit that is under way when its lease runs out: the moment that FM_004 is about."""

from __future__ import annotations

from faultline import protocol
from faultline.database import run
from faultline.model import Claim
from tests.processes.stage import Stage
from tests.races.stepper import Actor, Connect, enqueued

LEASE_SECONDS = 0.5
PAY = "INSERT INTO stage.payments (job_id, token) VALUES (%s, %s) RETURNING token"


def stalled_commit(stage: Stage, connect: Connect) -> tuple[Actor, Claim]:
    """The worker has written and fenced, its COMMIT is still to come, and its lease has run out."""
    enqueued(stage.conn)
    claim_one = protocol.claim("slow", ["default"], batch_size=1, lease_seconds=LEASE_SECONDS)
    (claim,) = run(stage.conn, claim_one)
    worker = Actor(connect)
    worker.begin()
    worker.run(PAY, (claim.job_id, claim.fencing_token))
    worker.run(protocol.commit(claim))
    expired = "FROM faultline.jobs WHERE lease_expires_at <= clock_timestamp()"
    stage.wait_until(lambda: stage.count(expired) == 1, "the lease does not run out")
    return worker, claim


def run_what_is_queued(stage: Stage) -> int:
    """Another worker takes whatever is there, pays and commits; how many jobs that were."""
    claims = run(stage.conn, protocol.claim("next", ["default"], batch_size=10, lease_seconds=60))
    for claim in claims:
        with stage.conn.transaction():
            stage.conn.execute(PAY, [claim.job_id, claim.fencing_token])
            run(stage.conn, protocol.commit(claim))
    return len(claims)
