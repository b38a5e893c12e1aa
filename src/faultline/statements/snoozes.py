"""Snoozes of a job: the verb, and how often a job was snoozed so far."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from faultline.model import Claim
from faultline.statements.statement import Statement


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The answer to a snooze."""

    next_run_at: datetime
    snoozes: int  # of this job so far


def snooze(
    claim: Claim, *, seconds: float | None, until: datetime | None, reason: str | None
) -> Statement[Snoozed]:
    """Queue a job again for later without using an attempt.

    PostgreSQL turns `until` into a delay by its own clock: the worker's clock may be wrong.
    """
    return Statement(
        """
        SELECT next_run_at, snoozes FROM faultline.snooze(%s::uuid, %s, %s::uuid, coalesce(
            %s::interval, make_interval(secs => extract(epoch FROM
                %s::timestamptz - statement_timestamp())::double precision)), %s)
        """,
        (
            claim.id,
            claim.fencing_token,
            claim.lease,
            None if seconds is None else timedelta(seconds=seconds),
            until,
            reason,
        ),
        lambda rows: Snoozed(*rows[0]),
    )


@dataclass(frozen=True, slots=True)
class SnoozeSummary:
    """How often a job was snoozed since it was enqueued, and why the last time."""

    count: int
    reason: str | None
    at: datetime  # of the last one


def snoozes_of(job_id: UUID) -> Statement[SnoozeSummary | None]:
    """The snoozes of a job whose last logged attempt was snoozed."""
    return Statement(
        """
        SELECT (SELECT sum(a.times) FROM faultline.attempts_log AS a
                WHERE a.job_id = latest.job_id AND a.outcome = 'snoozed'), latest.error, latest.ended_at
        FROM (SELECT job_id, outcome, error, ended_at FROM faultline.attempts_log
              WHERE job_id = %s ORDER BY id DESC LIMIT 1) AS latest
        WHERE latest.outcome = 'snoozed'
        """,
        (job_id,),
        lambda rows: SnoozeSummary(*rows[0]) if rows else None,
    )
