"""One of two guards is disabled, and the other must refuse a second effect.

Two guards keep a job from taking effect twice: the trigger that compares token, lease and clock,
and the ledger's keys. Each is disabled in turn, in a transaction that is rolled back, as a careless
restore or ALTER TABLE might do; the other one must hold on its own.
"""

from __future__ import annotations

from uuid import uuid4

import psycopg

from faultline.errors import StaleLease
from faultline.model import Claim
from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline_drills.context import DrillContext
from faultline_drills.recording.history import Phase, Verb
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import note

_ENTER = "INSERT INTO faultline.ledger (job_id, fencing_token, lease_id) VALUES (%s, %s, %s)"


@scenario(shows=("disabled_guards", "refusals", "commits"), breaks_naive=True)
def one_guard_disabled(drill: DrillContext) -> None:
    drill.submit(note, number=1)
    take = protocol.claim("clerk", ["default"], batch_size=1, lease_seconds=600)
    (claim,) = run(drill.conn, take)
    job = str(claim.job_id)
    attempt = drill.history.invoke("clerk", Verb.ATTEMPT, job=job, token=claim.fencing_token)
    run(drill.conn, protocol.commit(claim))
    drill.history.end(attempt, Phase.OK)

    drill.inject("disabled_guard", "triggers")
    for token in (claim.fencing_token, claim.fencing_token + 1):
        _expect_refusal(
            drill,
            "ALTER TABLE faultline.ledger DISABLE TRIGGER USER",
            claim,
            token,
            f"without its triggers the ledger accepted a second entry, under token {token}",
        )
    drill.inject("disabled_guard", "key")
    _expect_refusal(
        drill,
        "ALTER TABLE faultline.ledger DROP CONSTRAINT IF EXISTS ledger_pkey",
        claim,
        claim.fencing_token,
        "without its key the ledger accepted a second entry",
    )


def _expect_refusal(drill: DrillContext, weaken: str, claim: Claim, token: int, what: str) -> None:
    try:
        with drill.conn.transaction():
            drill.conn.execute(weaken.encode())
            lease = claim.lease_id if token == claim.fencing_token else uuid4()
            drill.conn.execute(_ENTER, [claim.job_id, token, lease])
            drill.expect(False, what)
            raise psycopg.Rollback
    except (psycopg.errors.UniqueViolation, StaleLease):
        drill.injected["refusal"] += 1
    except psycopg.Error as error:
        if error.sqlstate != "FL001":
            raise
        drill.injected["refusal"] += 1
