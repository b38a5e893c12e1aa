"""What the API reads of jobs, as values in the style of protocol.py. Nothing here writes.

Payloads and results pass through as the text that PostgreSQL wrote: a number that Python would round
stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson

from faultline.model import JobState
from faultline.statements.statement import Row, Statement

_AFTER_ALL = UUID(int=2**128 - 1)
_SUMMARY = (
    "j.id, j.task, j.queue, j.priority, j.state, j.failed_reason, j.attempts, j.max_attempts,"
    " j.fencing_token, j.idempotency_key, j.next_run_at, j.claimed_at, j.created_at, j.finished_at"
)
_JOB = (
    f"SELECT {_SUMMARY}, j.lease_owner, j.lease_expires_at, j.last_error, j.payload::text,"  # noqa: S608
    " l.result::text FROM faultline.jobs AS j LEFT JOIN faultline.ledger AS l ON l.job_id = j.id"
)
_SUMMARY_NAMES = [name.strip().removeprefix("j.") for name in _SUMMARY.split(",")]


@dataclass(frozen=True, slots=True)
class Page:
    jobs: list[dict[str, Any]]
    next: UUID | None  # where to go on from


def job(job_id: UUID) -> Statement[dict[str, Any] | None]:
    return Statement(
        f"{_JOB} WHERE j.id = %s",
        (job_id,),
        lambda rows: _job(rows[0]) if rows else None,
    )


def _job(row: Row) -> dict[str, Any]:
    *summary, owner, expires_at, last_error, payload, result = row
    return {
        **dict(zip(_SUMMARY_NAMES, summary, strict=True)),
        "lease_owner": owner,
        "lease_expires_at": expires_at,
        "last_error": last_error,
        "payload": orjson.Fragment(payload),
        "result": None if result is None else orjson.Fragment(result),
    }


def page(
    *,
    limit: int,
    scan: int,
    before: UUID | None = None,
    state: JobState | None = None,
    queue: str | None = None,
    task: str | None = None,
) -> Statement[Page]:
    """Newest first. However rare what is looked for, no more than `scan` jobs are looked at: a page
    that ends there says where to go on, so that a million others cost a reader patience, never the
    database a scan of them all."""
    is_filtered = not (state is queue is task is None)
    looked_at = scan if is_filtered else limit

    def read(rows: list[Row]) -> Page:
        seen, last = rows[0][:2]
        jobs = [
            dict(zip(_SUMMARY_NAMES, row[2:], strict=True)) for row in rows if row[2] is not None
        ]
        if len(jobs) == limit:
            return Page(jobs, jobs[-1]["id"])
        return Page(jobs, last if seen == looked_at else None)

    return Statement(
        "WITH seen AS MATERIALIZED (SELECT id, state, queue, task FROM faultline.jobs"  # noqa: S608
        "  WHERE id < %s ORDER BY id DESC LIMIT %s),"
        " chosen AS (SELECT id FROM seen WHERE (%s::text IS NULL OR state = %s)"
        "  AND (%s::text IS NULL OR queue = %s) AND (%s::text IS NULL OR task = %s)"
        "  ORDER BY id DESC LIMIT %s)"
        " SELECT (SELECT count(*) FROM seen), (SELECT id FROM seen ORDER BY id LIMIT 1),"
        f" {_SUMMARY} FROM (VALUES (1)) AS one"
        " LEFT JOIN faultline.jobs AS j ON j.id = ANY (ARRAY(SELECT id FROM chosen))"
        " ORDER BY j.id DESC",
        (before or _AFTER_ALL, looked_at, state, state, queue, queue, task, task, limit),
        read,
    )
