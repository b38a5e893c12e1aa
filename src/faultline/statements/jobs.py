"""Reads of jobs: one job, lists, history, and the jobs ahead of it. No writes.

They work for an account that may only read: what it may not see is missing from the rows, not an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, LiteralString
from uuid import UUID

import orjson

from faultline.model import JobRecord, JobState, ReportedProgress
from faultline.statements.job_filter import JobFilter, conditions
from faultline.statements.progress import PROGRESS_COLUMN, read_progress
from faultline.statements.statement import Row, Statement

COUNT_LIMIT = 10_000  # jobs ahead of one are counted up to this number
ERROR_LENGTH = 500  # characters of an error in a list of jobs
FORMER_PAYLOAD_LENGTH = 10_000  # characters of a payload that was edited, in a timeline
# A payload may have 8 MiB; the inspector shows this much. `faultline jobs show` prints all of it.
LARGEST_SHOWN_BYTES = 256 * 1024

_AFTER_ALL = UUID(int=2**128 - 1)

# Of `faultline.jobs AS j`: when the job is or was due, and the limit key that it waits for. In its row a
# waiting job is due parked_for() later (places.sql).
DUE_AT: LiteralString = """coalesce((
    SELECT w.due_at FROM faultline.waiting_jobs AS w WHERE j.limited AND w.job_id = j.id
      AND j.next_run_at = w.due_at + faultline.parked_for()), j.next_run_at)"""
WAITS_FOR: LiteralString = """(
    SELECT w.limit_key FROM faultline.waiting_jobs AS w WHERE j.limited AND w.job_id = j.id
      AND j.next_run_at = w.due_at + faultline.parked_for())"""


@dataclass(frozen=True, slots=True)
class JobText:
    """The JSON of a job exactly as stored: parsing would round large numbers."""

    payload: str
    result: str | None


def texts_of(job_ids: Sequence[UUID]) -> Statement[dict[UUID, JobText]]:
    return Statement(
        """
        SELECT j.id, j.payload::text, l.result::text FROM faultline.jobs AS j
        LEFT JOIN faultline.ledger AS l ON l.job_id = j.id WHERE j.id = ANY (%s)
        """,
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
    former_payload: str | None = None  # JSON text, the first FORMER_PAYLOAD_LENGTH characters
    times: int = 1  # how many snoozes the row counts, if the job was snoozed very often


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


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The columns of a job that its timeline needs, and the database's time."""

    state: JobState
    attempt: int
    token: int
    worker: str | None
    claimed_at: datetime | None
    created_at: datetime
    next_run_at: datetime
    lease_expires_at: datetime | None
    waits_for: str | None  # a limit key
    now: datetime


def progress_of(job_id: UUID) -> Statement[JobProgress | None]:
    return Statement(
        f"""
        SELECT j.state, j.attempts, j.fencing_token, j.lease_owner, j.claimed_at, j.created_at, {DUE_AT},
            j.lease_expires_at, {WAITS_FOR}, clock_timestamp() FROM faultline.jobs AS j WHERE j.id = %s
        """,  # noqa: S608 - of literals, all in this file
        (job_id,),
        lambda rows: JobProgress(JobState(rows[0][0]), *rows[0][1:]) if rows else None,
    )


def attempts_of(job_id: UUID, *, limit: int | None = None) -> Statement[list[LoggedAttempt]]:
    """The oldest first; `limit` None reads all."""
    return Statement(
        """
        SELECT attempt, fencing_token, worker, outcome, error, claimed_at, ended_at,
            left(former_payload::text, %s), times
        FROM faultline.attempts_log WHERE job_id = %s ORDER BY id LIMIT %s
        """,
        (FORMER_PAYLOAD_LENGTH, job_id, limit),
        lambda rows: [LoggedAttempt(*row) for row in rows],
    )


def ledger_entry_of(job_id: UUID) -> Statement[LedgerEntry | None]:
    return Statement(
        "SELECT fencing_token, worker, committed_at FROM faultline.ledger WHERE job_id = %s",
        (job_id,),
        lambda rows: LedgerEntry(*rows[0]) if rows else None,
    )


def rejections_of(job_id: UUID, *, limit: int | None = None) -> Statement[list[Rejection]]:
    """The oldest first; `limit` None reads all."""
    return Statement(
        """
        SELECT worker, stale_token, current_token, reason, overlap, rejected_at
        FROM faultline.rejections WHERE job_id = %s ORDER BY id LIMIT %s
        """,
        (job_id, limit),
        lambda rows: [Rejection(*row) for row in rows],
    )


# ── jobs that are claimed before it ──────────────────────────────────────────────────────────────


def jobs_ahead(job_id: UUID, other_queues: Sequence[str]) -> Statement[tuple[int, int]]:
    """How many due jobs are ahead of this one, in its queue and in `other_queues`."""
    return Statement(
        """
        SELECT (SELECT count(*) FROM (SELECT FROM faultline.jobs AS o WHERE o.state = 'queued'
                AND o.queue = j.queue AND o.next_run_at <= clock_timestamp()
                AND (o.priority, o.next_run_at, o.id) < (j.priority, j.next_run_at, j.id)
                LIMIT %s) AS own),
            (SELECT count(*) FROM (SELECT FROM faultline.jobs AS o WHERE o.state = 'queued'
                AND o.queue = ANY (%s::text[]) AND o.queue <> j.queue
                AND o.next_run_at <= clock_timestamp() AND o.priority < j.priority
                LIMIT %s) AS others)
        FROM faultline.jobs AS j WHERE j.id = %s
        """,
        (COUNT_LIMIT, list(other_queues), COUNT_LIMIT, job_id),
        lambda rows: (int(rows[0][0]), int(rows[0][1])) if rows else (0, 0),
    )


# ── why it is not running ────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The columns of a job that explain why it is not running."""

    id: UUID
    task: str
    queue: str
    priority: int
    state: JobState
    failed_reason: str | None
    attempts: int
    max_attempts: int
    fencing_token: int
    lease_owner: str | None
    lease_expires_at: datetime | None
    next_run_at: datetime
    created_at: datetime
    finished_at: datetime | None
    last_error: str | None


def status_of(job_id: UUID) -> Statement[JobStatus | None]:
    def read(rows: list[Row]) -> JobStatus | None:
        if not rows:
            return None
        row = rows[0]
        return JobStatus(*(*row[:4], JobState(row[4]), *row[5:]))

    return Statement(
        f"""
        SELECT j.id, j.task, j.queue, j.priority, j.state, j.failed_reason, j.attempts, j.max_attempts,
            j.fencing_token, j.lease_owner, j.lease_expires_at, {DUE_AT}, j.created_at, j.finished_at,
            j.last_error
        FROM faultline.jobs AS j WHERE j.id = %s
        """,  # noqa: S608 - of literals, all in this file
        (job_id,),
        read,
    )


@dataclass(frozen=True, slots=True)
class Deferral:
    """Why a queued job is not claimed by some workers: they do not know its task."""

    worker: str
    deferred_at: datetime


def deferral_of(job_id: UUID) -> Statement[Deferral | None]:
    """The deferral of a queued job that waits for its time."""
    return Statement(
        """
        SELECT d.worker, d.deferred_at FROM faultline.deferred_jobs AS d
        JOIN faultline.jobs AS j ON j.id = d.job_id
        WHERE d.job_id = %s AND j.state = 'queued' AND j.next_run_at > clock_timestamp()
        """,
        (job_id,),
        lambda rows: Deferral(*rows[0]) if rows else None,
    )


# ── one job, and lists of jobs ───────────────────────────────────────────────────────────────────

# The columns that every reader of a job selects, from `faultline.jobs AS j`.
JOB_COLUMNS: LiteralString = (
    "j.id, j.task, j.queue, j.priority, j.state, j.failed_reason, j.attempts, j.max_attempts,"
    f" j.fencing_token, j.idempotency_key, {DUE_AT}, j.claimed_at, j.created_at, j.finished_at,"
    f" {WAITS_FOR}, coalesce(j.tags::text[], '{{}}')"
)
_LEASE_COLUMNS: LiteralString = "j.lease_owner, j.lease_expires_at, j.last_error, j.scheduled_for"
# Null for a job that was enqueued without `unique`.
_UNIQUE_KEY: LiteralString = (
    "(SELECT u.unique_key FROM faultline.unique_jobs AS u WHERE u.job_id = j.id)"
)
_LEASE_NAMES = ("lease_owner", "lease_expires_at", "last_error", "scheduled_for")
_NAMES = [
    *("id", "task", "queue", "priority", "state", "failed_reason", "attempts", "max_attempts"),
    *("fencing_token", "idempotency_key", "next_run_at", "claimed_at", "created_at", "finished_at"),
    *("waits_for", "tags"),
]
_RECORD_NAMES = [
    *_NAMES,
    *(*_LEASE_NAMES, "progress", "payload", "result"),
    "unique_key",
]


def _record(row: Row) -> JobRecord:
    fields = dict(zip(_RECORD_NAMES, row, strict=True))
    fields["state"] = JobState(fields["state"])
    given = {"progress": read_progress(fields["progress"]), "tags": tuple(fields["tags"])}
    return JobRecord(**{**fields, **given})


def get_job(job_id: UUID) -> Statement[JobRecord | None]:
    return Statement(
        f"""
        SELECT {JOB_COLUMNS}, {_LEASE_COLUMNS}, {PROGRESS_COLUMN}, j.payload, l.result, {_UNIQUE_KEY}
        FROM faultline.jobs AS j LEFT JOIN faultline.ledger AS l ON l.job_id = j.id
        WHERE j.id = %s
        """,  # noqa: S608
        (job_id,),
        lambda rows: _record(rows[0]) if rows else None,
    )


def tasks_of(job_ids: Sequence[UUID]) -> Statement[dict[UUID, str]]:
    return Statement(
        "SELECT id, task FROM faultline.jobs WHERE id = ANY (%s)",
        (list(job_ids),),
        lambda rows: dict(rows),
    )


def records_of(job_ids: Sequence[UUID]) -> Statement[list[JobRecord]]:
    """These jobs, in the order of their ids in `job_ids`; missing ones are left out."""
    return Statement(
        f"""
        SELECT {JOB_COLUMNS}, {_LEASE_COLUMNS}, {PROGRESS_COLUMN}, j.payload, l.result, {_UNIQUE_KEY}
        FROM unnest(%s::uuid[]) WITH ORDINALITY AS given (id, ordinal)
        JOIN faultline.jobs AS j ON j.id = given.id
        LEFT JOIN faultline.ledger AS l ON l.job_id = j.id ORDER BY given.ordinal
        """,  # noqa: S608
        (list(job_ids),),
        lambda rows: [_record(row) for row in rows],
    )


# ── jobs as JSON documents ───────────────────────────────────────────────────────────────────────
# Payloads and results pass through as the text that PostgreSQL wrote: Python would round large numbers.


@dataclass(frozen=True, slots=True)
class JobJsonPage:
    jobs: list[dict[str, Any]]
    next: UUID | None  # `before` of the following page


def job_json(job_id: UUID) -> Statement[dict[str, Any] | None]:
    """One job by its columns' names, with payload and result exactly as stored."""
    return Statement(
        f"""
        SELECT {JOB_COLUMNS}, {_LEASE_COLUMNS}, {PROGRESS_COLUMN}, j.payload::text,
            l.result::text, {_UNIQUE_KEY}
        FROM faultline.jobs AS j LEFT JOIN faultline.ledger AS l ON l.job_id = j.id
        WHERE j.id = %s
        """,  # noqa: S608
        (job_id,),
        lambda rows: _as_json(rows[0]) if rows else None,
    )


def documents_of(job_ids: Sequence[UUID]) -> Statement[list[dict[str, Any]]]:
    """These jobs as `job_json` has them, in the order of `job_ids`."""
    return Statement(
        f"""
        SELECT {JOB_COLUMNS}, {_LEASE_COLUMNS}, {PROGRESS_COLUMN}, j.payload::text,
            l.result::text, {_UNIQUE_KEY}
        FROM unnest(%s::uuid[]) WITH ORDINALITY AS given (id, ordinal)
        JOIN faultline.jobs AS j ON j.id = given.id
        LEFT JOIN faultline.ledger AS l ON l.job_id = j.id ORDER BY given.ordinal
        """,  # noqa: S608
        (list(job_ids),),
        lambda rows: [_as_json(row) for row in rows],
    )


def _as_json(row: Row) -> dict[str, Any]:
    fields = dict(zip(_RECORD_NAMES, row, strict=True))
    result = fields["result"]
    return {
        **fields,
        "progress": read_progress(fields["progress"]),
        "payload": orjson.Fragment(fields["payload"]),
        "result": None if result is None else orjson.Fragment(result),
    }


def job_json_page(
    wanted: JobFilter, *, limit: int, scan: int, before: UUID | None = None
) -> Statement[JobJsonPage]:
    """Jobs without payloads, newest first; a filter examines at most `scan` jobs.

    A page that ends at the bound may be short, and names the job to continue from, so that a rare
    filter never makes PostgreSQL scan the table.
    """
    test, values = conditions(wanted)
    examined = scan if values else limit

    def read(rows: list[Row]) -> JobJsonPage:
        seen, last = rows[0][:2]
        jobs = [dict(zip(_NAMES, row[2:], strict=True)) for row in rows if row[2] is not None]
        if len(jobs) == limit:
            return JobJsonPage(jobs, jobs[-1]["id"])
        return JobJsonPage(jobs, last if seen == examined else None)

    return Statement(
        f"""
        WITH seen AS MATERIALIZED (SELECT j.id, true{test} AS is_wanted
            FROM faultline.jobs AS j WHERE j.id < %s ORDER BY j.id DESC LIMIT %s),
            chosen AS (SELECT id FROM seen WHERE is_wanted ORDER BY id DESC LIMIT %s)
        SELECT (SELECT count(*) FROM seen), (SELECT id FROM seen ORDER BY id LIMIT 1),
            {JOB_COLUMNS} FROM (VALUES (1)) AS one
        LEFT JOIN faultline.jobs AS j ON j.id = ANY (ARRAY(SELECT id FROM chosen))
        ORDER BY j.id DESC
        """,  # noqa: S608
        (*values, before or _AFTER_ALL, examined, limit),
        read,
    )


# ── jobs as the inspector shows them ─────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class JobRow:
    id: UUID
    task: str
    queue: str
    state: str
    priority: int
    attempts: int
    max_attempts: int
    token: int
    created_at: datetime
    next_run_at: datetime
    finished_at: datetime | None
    waits_for: str | None  # the limit key that a queued job waits for
    tags: list[str]
    failed_reason: str | None
    last_error: str | None  # in lists, its first ERROR_LENGTH characters
    progress: ReportedProgress | None


@dataclass(frozen=True, slots=True)
class JobDetails(JobRow):
    crashes: int
    idempotency_key: str | None
    lease_owner: str | None
    lease_seconds: float | None
    lease_expires_at: datetime | None
    claimed_at: datetime | None
    scheduled_for: datetime | None
    trace_context: str | None
    payload_text: str | None  # JSON exactly as stored; None when it is larger than can be shown
    payload_bytes: int
    result_text: str | None
    result_bytes: int | None
    unique_key: str | None


def read_job_row(row: Row) -> JobRow:
    """A row of JOB_COLUMNS, then PROGRESS_COLUMN and the error."""
    fields = _renamed(row[:-2])
    del fields["idempotency_key"], fields["claimed_at"]
    return JobRow(**fields, progress=read_progress(row[-2]), last_error=row[-1])


def _renamed(row: Row) -> dict[str, Any]:
    fields = dict(zip(_NAMES, row, strict=True))
    fields["token"] = fields.pop("fencing_token")
    return fields


def details_of(job_id: UUID) -> Statement[JobDetails | None]:
    """One job, without a payload or result that is too large for a page."""

    def read(rows: list[Row]) -> JobDetails | None:
        if not rows:
            return None
        columns, rest = rows[0][: len(_NAMES)], rows[0][len(_NAMES) :]
        fields = dict(zip(_DETAIL_NAMES, rest, strict=True))
        fields["progress"] = read_progress(fields["progress"])
        return JobDetails(**_renamed(columns), **fields)

    return Statement(
        f"""
        SELECT {JOB_COLUMNS}, {_LEASE_COLUMNS}, {PROGRESS_COLUMN}, j.crashes, j.lease_seconds::float8,
            j.trace_context, CASE WHEN given.bytes <= %s THEN j.payload::text END, given.bytes,
            CASE WHEN made.bytes <= %s THEN l.result::text END, made.bytes, {_UNIQUE_KEY}
        FROM faultline.jobs AS j
        LEFT JOIN LATERAL (SELECT result FROM faultline.ledger WHERE job_id = j.id LIMIT 1) AS l ON true
        CROSS JOIN LATERAL (SELECT octet_length(j.payload::text)) AS given (bytes)
        CROSS JOIN LATERAL (SELECT octet_length(l.result::text)) AS made (bytes)
        WHERE j.id = %s
        """,  # noqa: S608
        (LARGEST_SHOWN_BYTES, LARGEST_SHOWN_BYTES, job_id),
        read,
    )


_DETAIL_NAMES = (
    *(*_LEASE_NAMES, "progress", "crashes", "lease_seconds"),
    *("trace_context", "payload_text", "payload_bytes", "result_text", "result_bytes"),
    "unique_key",
)


def job_by_key(idempotency_key: str) -> Statement[JobRow | None]:
    """The one job that was enqueued with this idempotency key."""
    return Statement(
        f"""
        SELECT {JOB_COLUMNS}, {PROGRESS_COLUMN}, left(j.last_error, %s)
        FROM faultline.jobs AS j WHERE j.idempotency_key = %s
        """,  # noqa: S608
        (ERROR_LENGTH, idempotency_key),
        lambda rows: read_job_row(rows[0]) if rows else None,
    )
