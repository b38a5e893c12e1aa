"""The writes of a claim's holder: a fenced step, and a payment with its commit."""

from __future__ import annotations

from faultline.model import Claim
from faultline.postgres.sessions import run
from faultline.statements import protocol
from tests.processes.observed_database import ObservedDatabase


def write_step(database: ObservedDatabase, claim: Claim, worker: str) -> None:
    with database.conn.transaction():
        run(database.conn, protocol.assert_fence(claim))
        database.conn.execute("INSERT INTO steps VALUES (%s, %s)", [claim.job_id, worker])


def pay(database: ObservedDatabase, claim: Claim) -> None:
    with database.conn.transaction():
        database.conn.execute(
            "INSERT INTO app.payments VALUES (%s, %s)", [claim.job_id, claim.fencing_token]
        )
        run(database.conn, protocol.commit(claim))
