"""Reads of refused stale writes: pages, newest first, and counts. No writes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from faultline.statements.statement import Row, Statement

COUNTED_UP_TO = 1_000


@dataclass(frozen=True, slots=True)
class RejectedWrite:
    id: str
    job_id: UUID
    task: str | None  # None: retention has purged the job
    queue: str | None
    worker: str
    stale_token: int
    current_token: int | None
    reason: str
    overlap_seconds: float
    rejected_at: datetime


@dataclass(frozen=True, slots=True)
class RejectionPage:
    rejections: list[RejectedWrite]
    next: str | None


def page(*, limit: int, before: int | None = None) -> Statement[RejectionPage]:
    """The newest first."""

    def read(rows: list[Row]) -> RejectionPage:
        found = [RejectedWrite(str(row[0]), *row[1:]) for row in rows[:limit]]
        return RejectionPage(found, found[-1].id if len(rows) > limit else None)

    return Statement(
        """
        SELECT r.id, r.job_id, j.task, j.queue, r.worker, r.stale_token, r.current_token, r.reason,
            extract(epoch FROM r.overlap)::float8, r.rejected_at
        FROM (SELECT * FROM faultline.rejections WHERE id < %s ORDER BY id DESC LIMIT %s) AS r
        LEFT JOIN LATERAL (SELECT task, queue FROM faultline.jobs WHERE id = r.job_id LIMIT 1) AS j
            ON true ORDER BY r.id DESC
        """,
        (2**63 - 1 if before is None else before, limit + 1),
        read,
    )


@dataclass(frozen=True, slots=True)
class RejectionCount:
    last_hour: int
    recent: int
    is_exact: bool  # False: at least this many


def count(*, recent_seconds: float) -> Statement[RejectionCount]:
    """Count the newest COUNTED_UP_TO rows, from the end of the primary key."""
    return Statement(
        """
        SELECT count(*) FILTER (WHERE ago < interval '1 hour'),
            count(*) FILTER (WHERE ago < make_interval(secs => %s)),
            count(*) FILTER (WHERE ago < interval '1 hour') < %s
        FROM (SELECT clock_timestamp() - rejected_at AS ago FROM faultline.rejections
            ORDER BY id DESC LIMIT %s) AS newest
        """,
        (recent_seconds, COUNTED_UP_TO, COUNTED_UP_TO),
        lambda rows: RejectionCount(*rows[0]),
    )
