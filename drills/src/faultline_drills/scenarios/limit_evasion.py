"""A client with SQL access alone tries to evade limits with odd values.

PostgreSQL compares intervals as if every month had 30 days, but adds them by the calendar: `120000
mons -3599995 days` compares as five days and adds as 144 years. The client asks for leases,
renewals and purges with such intervals, commits under a `faultline.batch` that it set itself, to
hide its name, and an account without the right to enqueue creates a key with it. Each must be
refused, or stay within the limits.
"""

from __future__ import annotations

from typing import LiteralString

import psycopg
from psycopg import sql

from faultline.errors import FaultlineError
from faultline.model import Claim
from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline_drills.context import DrillContext
from faultline_drills.recording.history import Phase, Verb
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay

_WORKER = "clerk"
_ODD: tuple[LiteralString, ...] = (
    "-12 mons 360 days 1 hour",  # compares as an hour
    "120000 mons -3599995 days",  # compares as five days
)
_WITHIN_LIMITS = (
    "SELECT lease_expires_at > clock_timestamp() - interval '1 minute'"
    " AND lease_expires_at <= clock_timestamp() + interval '7 days'"
    " FROM faultline.jobs WHERE state = 'running'"
)


@scenario(shows=("odd_values", "refusals", "commits"))
def limit_evasion(drill: DrillContext) -> None:
    drill.submit(pay, number=1)
    for span in _ODD:
        _ask(drill, "a lease", "SELECT FROM faultline.claim('clerk', lease => %s)", span)
    (claim,) = run(
        drill.conn, protocol.claim(_WORKER, ["default"], batch_size=1, lease_seconds=600.0)
    )
    renewal: LiteralString = (
        "SELECT FROM faultline.jobs AS j, faultline.heartbeat("
        "'clerk', ARRAY[j.id], ARRAY[j.fencing_token], ARRAY[j.lease_id], %s)"
    )
    for span in _ODD:
        _ask(drill, "a renewal", renewal, span)
    _commit_as_batch(drill, claim)
    for span in _ODD:
        _purge(drill, span)
    _create_key(drill)


def _ask(drill: DrillContext, what: str, call: LiteralString, span: str) -> None:
    """Expect a refusal, or a value within the limits; the transaction is rolled back."""
    drill.inject("odd_value", what.replace(" ", "_"), span=span)
    try:
        with drill.conn.transaction(force_rollback=True):
            drill.conn.execute(call, [span])
            granted = drill.conn.execute(_WITHIN_LIMITS).fetchall()
    except psycopg.Error as error:
        _count(drill, error.sqlstate == "FL005", f"{what} of {span}: {error}")
        return
    drill.expect(granted == [(True,)], f"{what} of {span} exceeded the limit of 7 days")


def _commit_as_batch(drill: DrillContext, claim: Claim) -> None:
    """Expect the worker's name on the entry: only commit_many may sign as a batch."""
    drill.inject("odd_value", "batch")
    job = str(claim.job_id)
    attempt = drill.history.invoke(_WORKER, Verb.ATTEMPT, job=job, token=claim.fencing_token)
    with drill.conn.transaction():
        drill.conn.execute("SET LOCAL faultline.batch = 'on'")
        drill.conn.execute(
            "INSERT INTO drill.effects (job_id, token) VALUES (%s, %s)",
            [claim.job_id, claim.fencing_token],
        )
        run(drill.conn, protocol.commit(claim))
    drill.history.end(attempt, Phase.OK)
    ((signed,),) = drill.query("SELECT worker FROM faultline.ledger")
    drill.expect(signed == _WORKER, f"the ledger entry names {signed}, not {_WORKER}")


def _purge(drill: DrillContext, span: str) -> None:
    """Expect that jobs and ledger entries of a moment ago are kept."""
    calls: tuple[tuple[LiteralString, LiteralString, int], ...] = (
        ("jobs", "SELECT succeeded + failed FROM faultline.purge_jobs(%s, %s)", 2),
        ("entries of the ledger", "SELECT entries FROM faultline.purge_ledger(%s)", 1),
    )
    for what, call, spans in calls:
        drill.inject("odd_value", f"purge_of_{what.split()[0]}", span=span)
        try:
            with drill.conn.transaction(force_rollback=True):
                if spans == 1:  # an entry is kept as long as its job
                    drill.conn.execute("DELETE FROM faultline.jobs")
                removed = drill.conn.execute(call, [span] * spans).fetchall()
        except psycopg.Error as error:
            _count(drill, error.sqlstate == "FL005", f"a purge of {what}: {error}")
            continue
        drill.expect(removed == [(0,)], f"{what} of a moment ago were purged with {span}")


def _create_key(drill: DrillContext) -> None:
    """Act as an account that may create keys but not enqueue (needs a superuser)."""
    ((is_superuser,),) = drill.query("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
    if not is_superuser:
        return
    drill.inject("odd_value", "scope")
    account = sql.Identifier(f"faultline_drill_{drill.conn.info.backend_pid}")
    steps = (
        "CREATE ROLE {}",
        "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA faultline FROM PUBLIC",  # as `migrate --roles` does
        "GRANT USAGE ON SCHEMA faultline TO {}",
        "GRANT EXECUTE ON FUNCTION faultline.create_api_key(text, text, bytea, text[]) TO {}",
        "SET LOCAL SESSION AUTHORIZATION {}",
    )
    made = "SELECT faultline.create_api_key('drill', 'drilldri', sha256('x'), ARRAY['enqueue'])"
    try:
        with drill.conn.transaction(force_rollback=True):
            for step in steps:
                drill.conn.execute(sql.SQL(step).format(account))
            drill.conn.execute(made)
    except (psycopg.Error, FaultlineError) as error:
        _count(drill, "may not make a key with the scope enqueue" in str(error), f"a key: {error}")
    else:
        drill.expect(False, "an account without the right to enqueue created a key with it")


def _count(drill: DrillContext, refused: bool, what: str) -> None:
    drill.expect(refused, f"{what} was not refused for its limit")
    drill.injected["refusal"] += refused
