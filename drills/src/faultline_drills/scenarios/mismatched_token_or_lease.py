"""A client presents a token and a lease that do not belong together.

A client with a bug, an operator with an old note, or a primary that was lost before its last claim
was replicated: each has a token or a lease that is not the job's. Token and lease are two guards of
one property, so each is tried with the other one right. No client may write, end, renew or release
a job with them, and an operator's retry or cancel must not change a running or a finished job.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg

from faultline.errors import FaultlineError, IllegalTransition, StaleLease
from faultline.model import Claim, CommitOutcome, JobState, Renewal
from faultline.postgres.errors import translate
from faultline.postgres.sessions import run
from faultline.statements import progress, protocol, snoozes
from faultline.statements.progress import ProgressReport
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
    for what, credentials in forged.items():
        drill.inject("mismatched_credential", what.replace(" ", "_"))
        _expect_refused_writes(drill, credentials, what)
        _expect_refused_heartbeat(drill, credentials, what)
        if not _is_running(drill, claim):  # nothing is left to try
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
    """A job in its second attempt, so that an older token was really issued."""
    drill.submit(pay, number=1)
    take = protocol.claim("client", ["default"], batch_size=1, lease_seconds=LONG)
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


def _expect_refused_writes(drill: DrillContext, credentials: Claim, what: str) -> None:
    for verb, statement in _writes(credentials).items():
        _expect_refusal(drill, statement, f"{verb} with {what}")
    # commit_many answers per job instead of raising.
    _count(drill, _batch_is_stale(drill, credentials), f"commit_many with {what}")
    defer = protocol.defer_many([credentials], retry_seconds=0, reason="late")
    _count(drill, not run(drill.conn, defer), f"defer_many with {what}")
    report = progress.report_progress([ProgressReport(credentials, 0.5, "late")])
    _count(drill, not run(drill.conn, report), f"a report of progress with {what}")
    # An entry that poses as part of a batch is refused as well.
    entry = Statement(
        "INSERT INTO faultline.ledger (job_id, fencing_token, lease_id) VALUES (%s, %s, %s)",
        (credentials.job_id, credentials.fencing_token, credentials.lease_id),
        lambda rows: None,
    )
    for setting in ("", "on"):
        _expect_refusal(drill, entry, f"a ledger entry with {what}", batch=setting)


def _batch_is_stale(drill: DrillContext, credentials: Claim) -> bool:
    try:
        (verdict,) = run(drill.conn, protocol.commit_many([credentials], [None]))
    except StaleLease:
        return True
    return verdict.outcome is CommitOutcome.STALE


def _writes(credentials: Claim) -> dict[str, Statement[Any]]:
    return {
        "commit": protocol.commit(credentials),
        "assert_fence": protocol.assert_fence(credentials),
        "fail": protocol.fail(credentials, error="late"),
        "release": protocol.release(credentials),
        "snooze": snoozes.snooze(credentials, seconds=60, until=None, reason=None),
        "release_after_outage": protocol.release_after_outage(credentials, error="late"),
    }


def _expect_refused_heartbeat(drill: DrillContext, credentials: Claim, what: str) -> None:
    before = _expiry(drill, credentials)
    heartbeat = run(drill.conn, protocol.heartbeat("client", [credentials], lease_seconds=LONG * 2))
    is_lost = heartbeat.renewals[credentials.id] is Renewal.LOST
    _count(drill, is_lost and _expiry(drill, credentials) == before, f"a heartbeat with {what}")


def _expiry(drill: DrillContext, claim: Claim) -> object:
    query = "SELECT lease_expires_at FROM faultline.jobs WHERE id = %s"
    return drill.query(query, [claim.job_id])[0][0]


def _leave_a_running_job_alone(drill: DrillContext, claim: Claim) -> None:
    state = run(drill.conn, protocol.retry(claim.job_id))
    _count(drill, state is JobState.RUNNING, "a retry of a running job")
    requeued = run(drill.conn, protocol.reconcile(max_jobs=10))
    _count(drill, not requeued, "a reconciliation of a valid lease")
    nothing = Statement(
        "INSERT INTO faultline.ledger (job_id, fencing_token, lease_id)"
        " SELECT %s, %s, %s WHERE false",
        (claim.job_id, claim.fencing_token, claim.lease_id),
        lambda rows: None,
    )
    _expect_refusal(drill, nothing, "a ledger insert without rows")
    _enter_two_of_which_one_is_dropped(drill, claim)


def _enter_two_of_which_one_is_dropped(drill: DrillContext, claim: Claim) -> None:
    """A user's trigger drops one of two entries: the other must not count for both."""
    drill.submit(pay, number=2)
    take = protocol.claim("client", ["default"], batch_size=1, lease_seconds=LONG)
    (other,) = run(drill.conn, take)
    drill.conn.execute(_DROP_ROWS)
    both = Statement(
        "INSERT INTO faultline.ledger (job_id, fencing_token, lease_id, result)"
        " VALUES (%s, %s, %s, NULL), (%s, %s, %s, '\"dropped\"')",
        (*_credentials(claim), *_credentials(other)),
        lambda rows: None,
    )
    _expect_refusal(drill, both, "a statement that lost one of its entries")
    drill.conn.execute("DROP TRIGGER zz_drop ON faultline.ledger")
    _commit(drill, other)


def _credentials(claim: Claim) -> tuple[object, ...]:
    return (claim.job_id, claim.fencing_token, claim.lease_id)


def _commit(drill: DrillContext, claim: Claim) -> None:
    job = str(claim.job_id)
    attempt = drill.history.invoke("client", Verb.ATTEMPT, job=job, token=claim.fencing_token)
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
    except IllegalTransition:  # raised by the guard, since cancel itself did not check
        state = None
    _count(drill, state is JobState.SUCCEEDED, "a cancel of a finished job")
    try:
        run(drill.conn, protocol.retry(claim.job_id))
    except IllegalTransition:
        drill.injected["refusal"] += 1
    else:
        drill.expect(False, "a retry of a finished job was not refused")


def _arrive_too_late(drill: DrillContext) -> None:
    """Token and lease are right, but the lease has expired or the job was requeued."""
    claim = _claimed(drill)
    drill.conn.execute(
        "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() - interval '1 second'"
        " WHERE id = %s",
        [claim.job_id],
    )
    _expect_refusal(drill, protocol.commit(claim), "a commit after the lease had expired")
    run(drill.conn, protocol.reconcile(max_jobs=10))
    for verb, statement in _writes(claim).items():
        _expect_refusal(drill, statement, f"{verb} of a job that was requeued")


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
