"""Reads of lost attempts, and of the claims that followed them. No writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from faultline.model import Claim
from faultline.statements.statement import Statement

_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class Takeover:
    """A job claimed after a lost attempt.

    `cause` is expired or worker_lost. `recovery_seconds` counts from the last heartbeat or claim of the
    lost worker. If that worker was never silent, or comes back, it counts from when the job was
    reconciled.
    """

    cause: str
    recovery_seconds: float


def takeovers(claims: Sequence[Claim]) -> Statement[list[Takeover]]:
    """The takeovers among these claims. Call it soon, before the log changes."""
    return Statement(
        """
        SELECT a.outcome, greatest(0, extract(epoch FROM
                CASE WHEN j.fencing_token = mine.token THEN j.claimed_at ELSE a.ended_at END
                - CASE WHEN w.last_heartbeat_at > a.ended_at THEN a.ended_at
                ELSE greatest(a.claimed_at, w.last_heartbeat_at) END))::float8
        FROM unnest(%s::uuid[], %s::bigint[]) AS mine (job_id, token)
        JOIN faultline.attempts_log AS a ON a.job_id = mine.job_id
          AND a.fencing_token = mine.token - 1 AND a.outcome IN ('expired', 'worker_lost')
        JOIN faultline.jobs AS j ON j.id = mine.job_id
        LEFT JOIN faultline.workers AS w ON w.id = a.worker
        """,
        ([claim.id for claim in claims], [claim.fencing_token for claim in claims]),
        lambda rows: [Takeover(*row) for row in rows],
    )


@dataclass(frozen=True, slots=True)
class LostAttempts:
    """Attempts lost since a position in the log; `dead_jobs` by queue and reason."""

    last_id: int
    expired: int
    dead_jobs: dict[tuple[str, str], int]


def log_end() -> Statement[int]:
    """The position of the end of the log, for the first call of `lost_since`."""
    return Statement(
        "SELECT coalesce(max(id), 0) FROM faultline.attempts_log", (), lambda rows: int(rows[0][0])
    )


def lost_since(after_id: int) -> Statement[LostAttempts]:
    """Leases that expired and jobs that died since a position in the log.

    Jobs that a worker failed are left out, because that worker counts them. A job counts only if it is
    still as the logged attempt left it. The CASE makes the planner find each job by its primary key.
    """

    def read(rows: list[tuple[int | None, int, str | None, str | None, int]]) -> LostAttempts:
        dead_jobs = {
            (queue, reason): jobs for _, _, queue, reason, jobs in rows if queue and reason
        }
        last_id = rows[0][0] if rows else None
        return LostAttempts(last_id or after_id, sum(row[1] for row in rows), dead_jobs)

    return Statement(
        """
        WITH fresh AS MATERIALIZED (SELECT id, job_id, fencing_token, outcome, worker
            FROM faultline.attempts_log WHERE id > %s ORDER BY id LIMIT %s)
        SELECT (SELECT max(id) FROM fresh), count(*) FILTER (WHERE f.outcome = 'expired'),
            dead_job.queue, dead_job.failed_reason, count(*)
        FROM fresh AS f LEFT JOIN LATERAL (
            SELECT j.queue::text AS queue, j.failed_reason FROM faultline.jobs AS j
            WHERE (f.outcome IN ('expired', 'worker_lost', 'cancelled')
                OR f.outcome = 'failed' AND f.worker IS NULL) AND j.id = f.job_id
            AND CASE WHEN j.fencing_token = f.fencing_token AND j.state = 'failed' THEN true ELSE false END
            LIMIT 1) AS dead_job ON true
        GROUP BY dead_job.queue, dead_job.failed_reason
        """,
        (after_id, _ROWS_AT_ONCE),
        read,
    )
