"""Clients present papers that do not belong together: the right lease with a wrong token, and the reverse.

A client with a bug, an operator with an old note, a primary that was lost before its last claim was
shipped: each comes with a token or a lease that is not the job's. Token and lease are two guards of
one property, so each is tried with the other one right. Nobody may write, end, renew or give back a
job with such papers, and an operator's word on a job that is under way, or finished, changes nothing.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg

from faultline.errors import FaultlineError, IllegalTransition, StaleLease
from faultline.model import Claim, CommitOutcome, JobState, Renewal
from faultline.postgres.errors import translate
from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline.statements.statement import Statement
from faultline_drills.context import DrillContext, DrillNotRun
from faultline_drills.recording.history import Phase, Verb
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay

LONG = 600.0


@scenario(shows=("mismatched_credentials", "refusals", "commits"), breaks_naive=True)
def mismatched_token_or_lease(drill: DrillContext) -> None:
    claim = _claimed(drill)
    forged = {
        "an older token": claim._replace(fencing_token=claim.fencing_token - 1),
        "a token to come": claim._replace(fencing_token=claim.fencing_token + 1),
        "another lease": claim._replace(lease=str(uuid4())),
    }
    for what, papers in forged.items():
        drill.inject("mismatched_credential", what.replace(" ", "_"))
        _present(drill, papers, what)
        _beat(drill, papers, what)
        if not _is_running(
            drill, claim
        ):  # with papers like these, and there is nothing left to try
            drill.expect(False, f"the job was ended with {what}")
            return
    _leave_a_running_job_alone(drill, claim)
    if not _is_running(drill, claim):
        return
    _commit(drill, claim)
    _leave_a_finished_job_alone(drill, claim)
    _arrive_too_late(drill)


def _is_running(drill: DrillContext, claim: Claim) -> bool:
    query = "SELECT state FROM faultline.jobs WHERE id = %s"
    return bool(drill.query(query, [claim.job_id])[0][0] == "running")


def _claimed(drill: DrillContext) -> Claim:
    """A job in its second attempt, so that an older token was really given out."""
    drill.submit(pay, number=1)
    take = protocol.claim("clerk", ["default"], batch_size=1, lease_seconds=LONG)
    (first,) = run(drill.conn, take)
    run(drill.conn, protocol.release(first))
    claims = run(drill.conn, take)
    if len(claims) != 1:
        raise DrillNotRun("a job that was released could not be claimed again")
    return claims[0]


_DROP_ROWS = """
    CREATE FUNCTION drill.drop_row() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
    CREATE TRIGGER zz_drop BEFORE INSERT ON faultline.ledger FOR EACH ROW
    WHEN (NEW.result = '"dropped"') EXECUTE FUNCTION drill.drop_row();
"""


def _present(drill: DrillContext, papers: Claim, what: str) -> None:
    for verb, statement in _writes(papers).items():
        _expect_refusal(drill, statement, f"{verb} with {what}")
    # The batch that has no writes of its own beside it answers instead of raising.
    _count(drill, _batch_is_stale(drill, papers), f"commit_many with {what}")
    defer = protocol.defer_many([papers], retry_seconds=0, reason="late")
    _count(drill, not run(drill.conn, defer), f"defer_many with {what}")
    # Nor does it help to claim that the entry is part of a batch, or to make it look like one.
    entry = Statement(
        "INSERT INTO faultline.ledger (job_id, fencing_token, lease_id) VALUES (%s, %s, %s)",
        (papers.job_id, papers.fencing_token, papers.lease_id),
        lambda rows: None,
    )
    for setting in ("", "on"):
        _expect_refusal(drill, entry, f"a ledger entry with {what}", batch=setting)


def _batch_is_stale(drill: DrillContext, papers: Claim) -> bool:
    try:
        (verdict,) = run(drill.conn, protocol.commit_many([papers], [None]))
    except StaleLease:
        return True
    return verdict.outcome is CommitOutcome.STALE


def _writes(papers: Claim) -> dict[str, Statement[Any]]:
    return {
        "commit": protocol.commit(papers),
        "assert_fence": protocol.assert_fence(papers),
        "fail": protocol.fail(papers, error="late"),
        "release": protocol.release(papers),
        "release_after_outage": protocol.release_after_outage(papers, error="late"),
    }


def _beat(drill: DrillContext, papers: Claim, what: str) -> None:
    before = _expiry(drill, papers)
    beat = run(drill.conn, protocol.heartbeat("clerk", [papers], lease_seconds=LONG * 2))
    is_lost = beat.renewals[papers.id] is Renewal.LOST
    _count(drill, is_lost and _expiry(drill, papers) == before, f"a heartbeat with {what}")


def _expiry(drill: DrillContext, claim: Claim) -> object:
    query = "SELECT lease_expires_at FROM faultline.jobs WHERE id = %s"
    return drill.query(query, [claim.job_id])[0][0]


def _leave_a_running_job_alone(drill: DrillContext, claim: Claim) -> None:
    state = run(drill.conn, protocol.retry(claim.job_id))
    _count(drill, state is JobState.RUNNING, "a retry of a running job")
    reaped = run(drill.conn, protocol.reconcile(max_jobs=10))
    _count(drill, not reaped, "a reconciler, which took back a live lease")
    nothing = Statement(
        "INSERT INTO faultline.ledger (job_id, fencing_token, lease_id)"
        " SELECT %s, %s, %s WHERE false",
        (claim.job_id, claim.fencing_token, claim.lease_id),
        lambda rows: None,
    )
    _expect_refusal(drill, nothing, "an entry that enters nothing")
    _enter_two_of_which_one_is_dropped(drill, claim)


def _enter_two_of_which_one_is_dropped(drill: DrillContext, claim: Claim) -> None:
    """By a trigger of the user's: the other one must not stand for both."""
    drill.submit(pay, number=2)
    take = protocol.claim("clerk", ["default"], batch_size=1, lease_seconds=LONG)
    (other,) = run(drill.conn, take)
    drill.conn.execute(_DROP_ROWS)
    both = Statement(
        "INSERT INTO faultline.ledger (job_id, fencing_token, lease_id, result)"
        " VALUES (%s, %s, %s, NULL), (%s, %s, %s, '\"dropped\"')",
        (*_papers(claim), *_papers(other)),
        lambda rows: None,
    )
    _expect_refusal(drill, both, "a statement that lost one of its entries")
    drill.conn.execute("DROP TRIGGER zz_drop ON faultline.ledger")
    _commit(drill, other)


def _papers(claim: Claim) -> tuple[object, ...]:
    return (claim.job_id, claim.fencing_token, claim.lease_id)


def _commit(drill: DrillContext, claim: Claim) -> None:
    job = str(claim.job_id)
    attempt = drill.history.invoke("clerk", Verb.ATTEMPT, job=job, token=claim.fencing_token)
    with drill.conn.transaction():
        _write(drill, claim)
        run(drill.conn, protocol.commit(claim))
    drill.history.end(attempt, Phase.OK)


def _write(drill: DrillContext, claim: Claim) -> None:
    drill.conn.execute(
        "INSERT INTO drill.effects (job_id, token) VALUES (%s, %s)",
        [claim.job_id, claim.fencing_token],
    )


def _leave_a_finished_job_alone(drill: DrillContext, claim: Claim) -> None:
    for verb, statement in _writes(claim).items():
        _expect_refusal(drill, statement, f"{verb} of a finished job")
    try:
        state = run(drill.conn, protocol.cancel(claim.job_id))
    except IllegalTransition:  # the guard's word: the verb itself has not looked
        state = None
    _count(drill, state is JobState.SUCCEEDED, "a cancel of a finished job")
    try:
        run(drill.conn, protocol.retry(claim.job_id))
    except IllegalTransition:
        drill.injected["refusal"] += 1
    else:
        drill.expect(False, "a retry of a finished job was not refused")


def _arrive_too_late(drill: DrillContext) -> None:
    """The papers are right, and the job has been given back to the queue: nobody runs it now."""
    claim = _claimed(drill)
    drill.conn.execute(
        "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() - interval '1 second'"
        " WHERE id = %s",
        [claim.job_id],
    )
    _expect_refusal(drill, protocol.commit(claim), "a commit after the lease had run out")
    run(drill.conn, protocol.reconcile(max_jobs=10))
    for verb, statement in _writes(claim).items():
        _expect_refusal(drill, statement, f"{verb} of a job that was given back")


def _expect_refusal(
    drill: DrillContext, statement: Statement[Any], what: str, *, batch: str = ""
) -> None:
    refused = False
    try:
        with drill.conn.transaction():
            drill.conn.execute("SELECT set_config('faultline.batch', %s, true)", [batch])
            run(drill.conn, statement)
            raise psycopg.Rollback
    except StaleLease:
        refused = True
    except (psycopg.Error, FaultlineError) as error:
        known = translate(error) if isinstance(error, psycopg.Error) else error
        refused = isinstance(known, StaleLease)
    _count(drill, refused, what)


def _count(drill: DrillContext, refused: bool, what: str) -> None:
    drill.expect(refused, f"{what} was not refused")
    if refused:
        drill.injected["refusal"] += 1
