"""Stale writes that were refused, as values in the style of protocol.py. Nothing here writes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from faultline.statements.statement import Row, Statement

COUNTED_UP_TO = 1_000


@dataclass(frozen=True, slots=True)
class Refusal:
    id: str
    job_id: UUID
    task: str | None  # of a job that retention has removed, nothing is known
    queue: str | None
    worker: str
    stale_token: int
    current_token: int | None
    reason: str
    overlap_seconds: float
    rejected_at: datetime


@dataclass(frozen=True, slots=True)
class RefusalPage:
    rejections: list[Refusal]
    next: str | None


def page(*, limit: int, before: int | None = None) -> Statement[RefusalPage]:
    """The newest first."""

    def read(rows: list[Row]) -> RefusalPage:
        found = [Refusal(str(row[0]), *row[1:]) for row in rows[:limit]]
        return RefusalPage(found, found[-1].id if len(rows) > limit else None)

    return Statement(
        "SELECT r.id, r.job_id, j.task, j.queue, r.worker, r.stale_token, r.current_token, r.reason,"
        " extract(epoch FROM r.overlap)::float8, r.rejected_at"
        " FROM (SELECT * FROM faultline.rejections WHERE id < %s ORDER BY id DESC LIMIT %s) AS r"
        " LEFT JOIN LATERAL (SELECT task, queue FROM faultline.jobs WHERE id = r.job_id LIMIT 1) AS j"
        " ON true ORDER BY r.id DESC",
        (2**63 - 1 if before is None else before, limit + 1),
        read,
    )


@dataclass(frozen=True, slots=True)
class RefusalCount:
    last_hour: int
    recent: int
    is_exact: bool  # otherwise at least so many


def count(*, recent_seconds: float) -> Statement[RefusalCount]:
    """Ids follow time closely, so the newest few are read from the end of the primary key."""
    return Statement(
        "SELECT count(*) FILTER (WHERE ago < interval '1 hour'),"
        " count(*) FILTER (WHERE ago < make_interval(secs => %s)),"
        " count(*) FILTER (WHERE ago < interval '1 hour') < %s"
        " FROM (SELECT clock_timestamp() - rejected_at AS ago FROM faultline.rejections"
        "  ORDER BY id DESC LIMIT %s) AS newest",
        (recent_seconds, COUNTED_UP_TO, COUNTED_UP_TO),
        lambda rows: RefusalCount(*rows[0]),
    )
