"""What two workers with one number do: a fenced step in the middle of the job, then its commit."""

from __future__ import annotations

from faultline.model import Claim
from faultline.postgres.sessions import run
from faultline.statements import protocol
from tests.processes.stage import Stage


def write_step(stage: Stage, claim: Claim, worker: str) -> None:
    with stage.conn.transaction():
        run(stage.conn, protocol.assert_fence(claim))
        stage.conn.execute("INSERT INTO steps VALUES (%s, %s)", [claim.job_id, worker])


def pay(stage: Stage, claim: Claim) -> None:
    with stage.conn.transaction():
        stage.conn.execute(
            "INSERT INTO stage.payments VALUES (%s, %s)", [claim.job_id, claim.fencing_token]
        )
        run(stage.conn, protocol.commit(claim))
