"""What was lost and who took it over, as values in the style of protocol.py. Nothing here writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from faultline.model import Claim
from faultline.statements.statement import Statement

_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class Takeover:
    """A job claimed after an attempt that was lost: `cause` is expired or worker_lost. It took
    `recovery_seconds` from the last sign of life of the one who had it: a heartbeat, or its claim. If that
    one is heard of again, or was never silent, only the time since the job was taken from it is known."""

    cause: str
    recovery_seconds: float


def takeovers(claims: Sequence[Claim]) -> Statement[list[Takeover]]:
    """Of these claims, those that followed upon a loss; soon after them, while its traces are fresh."""
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
class Losses:
    """What the log says since a place in it: leases that ran out, and jobs that nobody will run again, by
    queue and reason."""

    last_id: int
    expired: int
    buried: dict[tuple[str, str], int]


def log_end() -> Statement[int]:
    """The place to go on from, for who wants to know what happens from now on."""
    return Statement(
        "SELECT coalesce(max(id), 0) FROM faultline.attempts_log", (), lambda rows: int(rows[0][0])
    )


def losses(after_id: int) -> Statement[Losses]:
    """Leases are taken back, and jobs buried, by the leader, by claims and by operators: the log has all.

    What a worker buries itself, with `fail`, it counts itself. A job is found by its key, which the CASE
    keeps the planner to, and only if it is still as the logged attempt left it.
    """

    def read(rows: list[tuple[int | None, int, str | None, str | None, int]]) -> Losses:
        buried = {(queue, reason): jobs for _, _, queue, reason, jobs in rows if queue and reason}
        last_id = rows[0][0] if rows else None
        return Losses(last_id or after_id, sum(row[1] for row in rows), buried)

    return Statement(
        """
        WITH fresh AS MATERIALIZED (SELECT id, job_id, fencing_token, outcome, worker
            FROM faultline.attempts_log WHERE id > %s ORDER BY id LIMIT %s)
        SELECT (SELECT max(id) FROM fresh), count(*) FILTER (WHERE f.outcome = 'expired'),
            dead.queue, dead.failed_reason, count(*)
        FROM fresh AS f LEFT JOIN LATERAL (
            SELECT j.queue::text AS queue, j.failed_reason FROM faultline.jobs AS j
            WHERE (f.outcome IN ('expired', 'worker_lost', 'cancelled')
                OR f.outcome = 'failed' AND f.worker IS NULL) AND j.id = f.job_id
            AND CASE WHEN j.fencing_token = f.fencing_token AND j.state = 'failed' THEN true ELSE false END
            LIMIT 1) AS dead ON true
        GROUP BY dead.queue, dead.failed_reason
        """,
        (after_id, _ROWS_AT_ONCE),
        read,
    )
