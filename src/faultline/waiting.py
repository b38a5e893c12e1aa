"""Deferrals (claiming.sql), releases after an outage and a clock set back (recovery.sql) as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from faultline.model import Claim
from faultline.protocol import Statement


def defer_many(
    claims: Sequence[Claim], *, retry_seconds: float, reason: str
) -> Statement[set[str]]:
    """Give back jobs that this worker cannot run; the ids of those that it still held."""
    return Statement(
        "SELECT job_id::text"
        " FROM faultline.defer_many(%s::uuid[], %s::bigint[], %s::uuid[], %s, %s)",
        (
            [claim.id for claim in claims],
            [claim.fencing_token for claim in claims],
            [claim.lease for claim in claims],
            timedelta(seconds=retry_seconds),
            reason,
        ),
        lambda rows: {job_id for (job_id,) in rows},
    )


def release_after_outage(claim: Claim, *, error: str) -> Statement[bool]:
    """Release the job uncharged; False, and still held, after too many outages."""
    return Statement(
        "SELECT faultline.release_after_outage(%s::uuid, %s, %s::uuid, %s)",
        (claim.id, claim.fencing_token, claim.lease, error),
        lambda rows: bool(rows[0][0]),
    )


@dataclass(frozen=True, slots=True)
class Deferral:
    """Why a queued job is not claimed by everyone: a worker did not know its task."""

    worker: str
    deferred_at: datetime


def deferral_of(job_id: UUID) -> Statement[Deferral | None]:
    """Of a queued job that waits for its time; the entry of any other is out of date."""
    return Statement(
        "SELECT d.worker, d.deferred_at FROM faultline.deferred_jobs AS d"
        " JOIN faultline.jobs AS j ON j.id = d.job_id"
        " WHERE d.job_id = %s AND j.state = 'queued' AND j.next_run_at > clock_timestamp()",
        (job_id,),
        lambda rows: Deferral(*rows[0]) if rows else None,
    )


def clock_setback() -> Statement[float]:
    """How many seconds the newest times on record lie ahead of the database's clock."""
    return Statement(
        "SELECT extract(epoch FROM faultline.clock_setback())::float8",
        (),
        lambda rows: float(rows[0][0]),
    )


class Rescheduled(NamedTuple):
    jobs: int
    next: str | None  # JSON text: where to go on; None at the end


def reschedule_stranded(after: str | None) -> Statement[Rescheduled]:
    return Statement(
        "SELECT jobs, next::text FROM faultline.reschedule_stranded(%s::jsonb)",
        (after,),
        lambda rows: Rescheduled(*rows[0]),
    )
