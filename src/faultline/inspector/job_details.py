"""One job with all that is known of it, as values in the style of protocol.py. Nothing here writes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from faultline.inspector.job_pages import ERROR_LENGTH, JobSummary
from faultline.statements.statement import Row, Statement

# What a page can show. A payload may have 8 MiB: `faultline jobs show` prints all of it.
LARGEST_SHOWN_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class JobDetails(JobSummary):
    crashes: int
    idempotency_key: str | None
    lease_owner: str | None
    lease_seconds: float | None
    lease_expires_at: datetime | None
    claimed_at: datetime | None
    trace_context: str | None
    payload_text: str | None  # JSON exactly as stored; None when it is larger than can be shown
    payload_bytes: int
    result_text: str | None
    result_bytes: int | None

    def document(self) -> dict[str, Any]:
        """As clients read it. Numbers pass through as PostgreSQL wrote them: parsing would round them."""
        shown = asdict(self)
        return {**shown, "payload": _exact(self.payload_text), "result": _exact(self.result_text)}


def _exact(text: str | None) -> orjson.Fragment | None:
    return None if text is None else orjson.Fragment(text)


def details(job_id: UUID) -> Statement[JobDetails | None]:
    def read(rows: list[Row]) -> JobDetails | None:
        return JobDetails(*rows[0]) if rows else None

    return Statement(
        "SELECT j.id, j.task, j.queue, j.state, j.priority, j.attempts, j.max_attempts,"
        " j.fencing_token, j.created_at, j.next_run_at, j.finished_at, j.failed_reason, j.last_error,"
        " j.crashes, j.idempotency_key, j.lease_owner, j.lease_seconds::float8, j.lease_expires_at,"
        " j.claimed_at, j.trace_context,"
        " CASE WHEN given.bytes <= %s THEN j.payload::text END, given.bytes,"
        " CASE WHEN made.bytes <= %s THEN l.result::text END, made.bytes"
        " FROM faultline.jobs AS j"
        " LEFT JOIN LATERAL (SELECT result FROM faultline.ledger WHERE job_id = j.id LIMIT 1) AS l ON true"
        " CROSS JOIN LATERAL (SELECT octet_length(j.payload::text)) AS given (bytes)"
        " CROSS JOIN LATERAL (SELECT octet_length(l.result::text)) AS made (bytes)"
        " WHERE j.id = %s",
        (LARGEST_SHOWN_BYTES, LARGEST_SHOWN_BYTES, job_id),
        read,
    )


def of_key(idempotency_key: str) -> Statement[JobSummary | None]:
    """The one job that was enqueued with this key."""
    return Statement(
        "SELECT id, task, queue, state, priority, attempts, max_attempts, fencing_token, created_at,"
        " next_run_at, finished_at, failed_reason, left(last_error, %s)"
        " FROM faultline.jobs WHERE idempotency_key = %s",
        (ERROR_LENGTH, idempotency_key),
        lambda rows: JobSummary(*rows[0]) if rows else None,
    )
