"""Reads of leases: pages in the order of their expiry, and a summary. No writes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from faultline.statements import page_cursor
from faultline.statements.statement import Row, Statement

# The leases that expire first are the ones at risk: reading more would change no number.
SUMMARIZED_LEASES = 10_000

_ORDER = "leases"
_FIRST_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class LeaseRow:
    job_id: UUID
    task: str
    queue: str
    token: int
    owner: str
    claimed_at: datetime | None
    lease_expires_at: datetime
    remaining_seconds: float
    lease_seconds: float | None

    @property
    def remaining_share(self) -> float:
        """The part of the lease that is left, 0 to 1."""
        if not self.lease_seconds:
            return 0.0
        return min(1.0, max(0.0, self.remaining_seconds / self.lease_seconds))


@dataclass(frozen=True, slots=True)
class LeasePage:
    leases: list[LeaseRow]
    next: str | None


def page(*, limit: int, after: str | None = None) -> Statement[LeasePage]:
    """A page in the order of expiry. Heartbeats reorder leases between two pages."""

    def read(rows: list[Row]) -> LeasePage:
        leases = [LeaseRow(*row) for row in rows[:limit]]
        is_more = len(rows) > limit
        last = (leases[-1].lease_expires_at, leases[-1].job_id) if is_more else None
        return LeasePage(leases, page_cursor.encode(_ORDER, last) if last else None)

    moment, job_id = (
        page_cursor.decode(after, _ORDER, (datetime, UUID)) if after else (None, _FIRST_ID)
    )
    # PostgreSQL reads all leases and sorts them: an index with this time would make renewals expensive.
    return Statement(
        """
        SELECT j.id, j.task, j.queue, j.fencing_token, j.lease_owner, j.claimed_at,
            j.lease_expires_at,
            extract(epoch FROM j.lease_expires_at - clock_timestamp())::float8, j.lease_seconds::float8
        FROM faultline.jobs AS j WHERE j.state = 'running'
        AND (j.lease_expires_at, j.id) > (coalesce(%s::timestamptz, '-infinity'), %s)
        ORDER BY j.lease_expires_at, j.id LIMIT %s
        """,
        (moment, job_id, limit + 1),
        read,
    )


@dataclass(frozen=True, slots=True)
class LeaseSummary:
    """Counts and extremes of the SUMMARIZED_LEASES leases that expire first."""

    leases: int
    expired: int
    longest_expired_seconds: float | None
    worst_remaining_share: float | None  # 0: expired; None: no lease
    heartbeat_lateness_seconds: float  # of the latest worker; 0: none is late


def summary() -> Statement[LeaseSummary]:
    """A worker is late if its heartbeat is older than half of its shortest lease.

    A worker refuses to start with settings under which a healthy worker would be late.
    """
    return Statement(
        """
        WITH held AS MATERIALIZED (SELECT j.lease_owner, nullif(j.lease_seconds, 0)::float8 AS length,
            extract(epoch FROM j.lease_expires_at - clock_timestamp())::float8 AS remaining
            FROM faultline.jobs AS j WHERE j.state = 'running' ORDER BY j.lease_expires_at LIMIT %s)
        SELECT count(*), count(*) FILTER (WHERE h.remaining <= 0), -min(h.remaining) FILTER
            (WHERE h.remaining <= 0), min(least(1, greatest(0, h.remaining / h.length))),
            coalesce((SELECT greatest(0, max(extract(epoch FROM
                            clock_timestamp() - w.last_heartbeat_at)::float8 - o.shortest / 2))
                FROM (SELECT lease_owner, min(length) AS shortest FROM held GROUP BY lease_owner) AS o
                CROSS JOIN LATERAL (SELECT last_heartbeat_at FROM faultline.workers
                    WHERE id = o.lease_owner LIMIT 1) AS w), 0)
        FROM held AS h
        """,
        (SUMMARIZED_LEASES,),
        lambda rows: LeaseSummary(*rows[0]),
    )
