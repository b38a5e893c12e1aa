"""Handlers end their job's transaction: COMMIT, ROLLBACK, savepoints.

A handler that commits its write early and then fails leaves an effect behind, and its job runs
again. One that rolls back and then enters the ledger succeeds without its effect. PostgreSQL must
refuse both, for clients that use SQL alone, and for handlers that send such statements past the
library and ignore every error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, LiteralString

import psycopg

from faultline.errors import FaultlineError, NotCommitted, StaleLease
from faultline.model import Claim
from faultline.postgres.errors import translate
from faultline.postgres.sessions import Connection, connect, run
from faultline.statements import protocol, transactions
from faultline.statements.statement import Statement
from faultline_drills.context import DrillContext
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import end_transaction, pay

_LONG = 600.0
_WRITE = "write"
_Step = LiteralString | Statement[Any]

# Sent by handlers of a worker in their first attempt.
_SENT_BY_HANDLERS = (
    "COMMIT",
    "COMMIT AND CHAIN",
    "ROLLBACK",
    "ROLLBACK; INSERT INTO drill.effects (job_id, token) VALUES ('{job}', {token})",
)


@scenario(shows=("ended_transactions", "refusals", "retries", "commits"), breaks_naive=True)
def handler_ends_its_transaction(drill: DrillContext) -> None:
    for make, jobs in ((_sequences, 1), (_sequences_of_batches, 2)):
        claims = _claimed(drill, jobs)
        for name in make(*claims):
            _try_sequence(drill, name, claims, make(*claims)[name])
            claims = _claimed(drill, jobs)
        for claim in claims:
            run(drill.conn, protocol.release(claim))
    for number, statement in enumerate(_SENT_BY_HANDLERS):
        drill.inject("ended_transaction", statement.partition(";")[0].casefold().replace(" ", "_"))
        drill.submit(end_transaction, number=number, statement=statement)
    drill.started_worker()
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")


def _claimed(drill: DrillContext, jobs: int) -> list[Claim]:
    for number in range(jobs):
        drill.submit(pay, number=number)
    take = protocol.claim("clerk", ["default"], batch_size=jobs, lease_seconds=_LONG)
    return run(drill.conn, take)


def _sequences(claim: Claim) -> dict[str, tuple[_Step, ...]]:
    """By name, a client's statements for a job it holds; one must be refused."""
    opening = transactions.open_transaction(claim, completes=True)
    step = transactions.open_transaction(claim, completes=False)
    closing = transactions.close_transaction(claim)
    entry = protocol.commit(claim)
    batch = protocol.commit_many([claim], [None])
    serial: LiteralString = "BEGIN ISOLATION LEVEL REPEATABLE READ"
    return {
        "an early commit": ("BEGIN", opening, _WRITE, "COMMIT"),
        "an early commit of a step": ("BEGIN", step, _WRITE, "COMMIT"),
        "an entry after a rollback": ("BEGIN", opening, "ROLLBACK", "BEGIN", closing, "COMMIT"),
        "a step closed after a rollback": ("BEGIN", step, "ROLLBACK", "BEGIN", closing, "COMMIT"),
        "an entry that was rolled back": (
            *("BEGIN", opening, _WRITE, "SAVEPOINT s", closing, "ROLLBACK TO s", "COMMIT"),
        ),
        "a step whose end was rolled back": (
            *("BEGIN", step, _WRITE, "SAVEPOINT s", closing, "ROLLBACK TO s", "COMMIT"),
        ),
        "an entry in a savepoint": (
            *("BEGIN", _WRITE, "SAVEPOINT s", entry, "ROLLBACK TO s", "COMMIT"),
        ),
        "an entry in a savepoint under REPEATABLE READ": (serial, "SAVEPOINT s", entry),
        "a batch in a savepoint": (
            *("BEGIN", _WRITE, "SAVEPOINT s", batch, "ROLLBACK TO s", "COMMIT"),
        ),
        "an opening in a savepoint": (
            *("BEGIN", "SAVEPOINT s", opening, "ROLLBACK TO s", _WRITE, "COMMIT"),
        ),
        "an opening on its own": (opening, _WRITE),
    }


def _sequences_of_batches(first: Claim, second: Claim) -> dict[str, tuple[_Step, ...]]:
    """The same for the transaction of a batch handler with two jobs."""
    both = (first, second)
    opening = transactions.open_batch(both, completes=True, idle_seconds=_LONG)
    step = transactions.open_batch(both, completes=False, idle_seconds=_LONG)
    closing = transactions.close_batch(both)
    return {
        "an early commit of a batch": ("BEGIN", opening, _WRITE, "COMMIT"),
        "an early commit of a step of a batch": ("BEGIN", step, _WRITE, "COMMIT"),
        "a batch with the entry of its first job": (
            *("BEGIN", opening, _WRITE, protocol.commit(first), "COMMIT"),
        ),
        "a batch that is closed for its first job": (
            *("BEGIN", opening, _WRITE, transactions.close_batch([first]), "COMMIT"),
        ),
        "a batch closed after a rollback": ("BEGIN", opening, "ROLLBACK", "BEGIN", closing),
        "a step of a batch whose end was rolled back": (
            *("BEGIN", step, _WRITE, "SAVEPOINT s", closing, "ROLLBACK TO s", "COMMIT"),
        ),
        "an opening of a batch in a savepoint": (
            *("BEGIN", "SAVEPOINT s", opening, "ROLLBACK TO s", _WRITE, "COMMIT"),
        ),
    }


def _try_sequence(
    drill: DrillContext, name: str, claims: Sequence[Claim], steps: Sequence[_Step]
) -> None:
    drill.inject("ended_transaction", name.replace(" ", "_"))
    with connect(drill.url, application_name="faultline drill") as conn:
        refused = _is_refused(conn, claims[0], steps)
    drill.expect(refused, f"{name} was not refused")
    drill.injected["refusal"] += refused
    for claim in claims:
        with contextlib.suppress(StaleLease):  # the control has committed the job
            run(drill.conn, protocol.fail(claim, error=f"ended its transaction: {name}"))


def _is_refused(conn: Connection, claim: Claim, steps: Sequence[_Step]) -> bool:
    for step in steps:
        try:
            if isinstance(step, Statement):
                run(conn, step)
            elif step is _WRITE:
                conn.execute(
                    "INSERT INTO drill.effects (job_id, token) VALUES (%s, %s)",
                    [claim.job_id, claim.fencing_token],
                )
            else:
                conn.execute(step)
        except (psycopg.Error, FaultlineError) as error:
            known = translate(error) if isinstance(error, psycopg.Error) else error
            if isinstance(known, NotCommitted):
                return True
            if not isinstance(known, FaultlineError):
                raise
            return False  # refused for another reason
    return False
