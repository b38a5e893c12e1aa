"""Reads that only diagnosis needs, as values in the style of protocol.py. Nothing here writes.

They work for an account that may only look: a view that it may not see in full has gaps, not errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from faultline.model import JobRecord, JobState
from faultline.statements.statement import Row, Statement

COUNT_LIMIT = 10_000  # enough to know that it is many


@dataclass(frozen=True, slots=True)
class JobText:
    """The JSON of a job exactly as PostgreSQL stores it: parsing would round large numbers."""

    payload: str
    result: str | None


def texts_of(job_ids: Sequence[UUID]) -> Statement[dict[UUID, JobText]]:
    return Statement(
        "SELECT j.id, j.payload::text, l.result::text FROM faultline.jobs AS j"
        " LEFT JOIN faultline.ledger AS l ON l.job_id = j.id WHERE j.id = ANY (%s)",
        (list(job_ids),),
        lambda rows: {row[0]: JobText(*row[1:]) for row in rows},
    )


# ── the history of a job ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class LoggedAttempt:
    attempt: int
    fencing_token: int
    worker: str | None
    outcome: str
    error: str | None
    claimed_at: datetime | None
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    fencing_token: int
    worker: str | None
    committed_at: datetime


@dataclass(frozen=True, slots=True)
class Rejection:
    worker: str
    stale_token: int
    current_token: int | None
    reason: str
    overlap: timedelta
    rejected_at: datetime


def attempts_of(job_id: UUID) -> Statement[list[LoggedAttempt]]:
    return Statement(
        "SELECT attempt, fencing_token, worker, outcome, error, claimed_at, ended_at"
        " FROM faultline.attempts_log WHERE job_id = %s ORDER BY id",
        (job_id,),
        lambda rows: [LoggedAttempt(*row) for row in rows],
    )


def ledger_entry_of(job_id: UUID) -> Statement[LedgerEntry | None]:
    return Statement(
        "SELECT fencing_token, worker, committed_at FROM faultline.ledger WHERE job_id = %s",
        (job_id,),
        lambda rows: LedgerEntry(*rows[0]) if rows else None,
    )


def rejections_of(job_id: UUID) -> Statement[list[Rejection]]:
    return Statement(
        "SELECT worker, stale_token, current_token, reason, overlap, rejected_at"
        " FROM faultline.rejections WHERE job_id = %s ORDER BY id",
        (job_id,),
        lambda rows: [Rejection(*row) for row in rows],
    )


# ── who could run it ─────────────────────────────────────────────────────────────────────────────


def jobs_ahead(job_id: UUID, other_queues: Sequence[str]) -> Statement[tuple[int, int]]:
    """How many due jobs a claim prefers to this one: in its own queue, and among `other_queues`."""
    return Statement(
        "SELECT (SELECT count(*) FROM (SELECT FROM faultline.jobs AS o WHERE o.state = 'queued'"
        "  AND o.queue = j.queue AND o.next_run_at <= clock_timestamp()"
        "  AND (o.priority, o.next_run_at, o.id) < (j.priority, j.next_run_at, j.id)"
        "  LIMIT %s) AS own),"
        " (SELECT count(*) FROM (SELECT FROM faultline.jobs AS o WHERE o.state = 'queued'"
        "  AND o.queue = ANY (%s::text[]) AND o.queue <> j.queue"
        "  AND o.next_run_at <= clock_timestamp() AND o.priority < j.priority"
        "  LIMIT %s) AS others)"
        " FROM faultline.jobs AS j WHERE j.id = %s",
        (COUNT_LIMIT, list(other_queues), COUNT_LIMIT, job_id),
        lambda rows: (int(rows[0][0]), int(rows[0][1])) if rows else (0, 0),
    )


# ── who holds its row ────────────────────────────────────────────────────────────────────────────


_JOB = (
    "SELECT j.id, j.task, j.queue, j.priority, j.payload, j.idempotency_key, j.state,"
    " j.failed_reason, j.attempts, j.max_attempts, j.fencing_token, j.lease_owner,"
    " j.lease_expires_at, j.next_run_at, j.claimed_at, j.created_at, j.finished_at, j.last_error,"
    " l.result FROM faultline.jobs AS j LEFT JOIN faultline.ledger AS l ON l.job_id = j.id"
)


def _job(row: Row) -> JobRecord:
    record = JobRecord(*row)
    return replace(record, state=JobState(record.state))


def get_job(job_id: UUID) -> Statement[JobRecord | None]:
    return Statement(
        f"{_JOB} WHERE j.id = %s",
        (job_id,),
        lambda rows: _job(rows[0]) if rows else None,
    )


def list_jobs(
    *,
    state: str | None = None,
    queue: str | None = None,
    task: str | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> Statement[list[JobRecord]]:
    """Newest first; `before` is the last id of the page that came before."""
    return Statement(
        f"{_JOB} WHERE (%s::text IS NULL OR j.state = %s) AND (%s::text IS NULL OR j.queue = %s)"
        " AND (%s::text IS NULL OR j.task = %s) AND (%s::uuid IS NULL OR j.id < %s)"
        " ORDER BY j.id DESC LIMIT %s",
        (state, state, queue, queue, task, task, before, before, limit),
        lambda rows: [_job(row) for row in rows],
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
