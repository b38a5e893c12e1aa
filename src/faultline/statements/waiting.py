"""What a job waits for: a limit, the jobs in its places, and its next start."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from faultline.statements.statement import Row, Statement

COUNT_LIMIT = 10_000  # jobs before one in its line are counted up to this number
SHOWN_PLACES = 5


@dataclass(frozen=True, slots=True)
class TakenPlace:
    """A running job that has a place under a limit key."""

    job_id: UUID
    worker: str | None
    taken_at: datetime


@dataclass(frozen=True, slots=True)
class Wait:
    """The limit key that a due job waits for; columns of a removed limit are None."""

    limit_key: str
    limit_name: str
    waits_since: datetime
    ahead: int  # jobs before it in the line of the key
    is_contended: bool  # another claim was deciding about the key: a claim looks again at once
    max_running: int | None
    rate_jobs: int | None
    rate_seconds: float | None
    burst: int | None
    changed_by: str | None  # code | operator
    changed_at: datetime | None
    next_start_in_seconds: float | None  # under the rate; below zero: a job may start
    taken: int  # places
    places: list[TakenPlace]  # the first SHOWN_PLACES


def wait_of(job_id: UUID) -> Statement[Wait | None]:
    """What a queued job waits for; None if it waits for no limit."""

    def read(rows: list[Row]) -> Wait | None:
        if not rows:
            return None
        columns, places = rows[0][:-3], [column or () for column in rows[0][-3:]]
        taken = [TakenPlace(*place) for place in zip(*places, strict=True)]
        return Wait(*(*columns, taken))

    return Statement(
        """
        SELECT w.limit_key, split_part(w.limit_key, '=', 1), w.due_at,
            (SELECT count(*) FROM (
                SELECT FROM faultline.heads_of(w.limit_key) AS h
                JOIN faultline.waiting_jobs AS o ON o.limit_key = w.limit_key AND o.queue = h.queue
                AND (o.priority, o.due_at, o.job_id) < (w.priority, w.due_at, w.job_id)
                LIMIT %s) AS before),
            w.resume_at IS NOT NULL, l.max_running, l.rate_jobs, l.rate_seconds, l.burst, l.changed_by,
            l.changed_at,
            CASE WHEN l.rate_jobs IS NOT NULL AND isfinite(s.next_start_at)
                 THEN extract(epoch FROM s.next_start_at - clock_timestamp())::float8 END,
            (SELECT count(*) FROM (
                SELECT FROM faultline.places AS p WHERE p.limit_key = w.limit_key
                LIMIT %s) AS counted),
            taken.ids, taken.workers, taken.since
        FROM faultline.waiting_jobs AS w
        JOIN faultline.jobs AS j ON j.id = w.job_id AND j.state = 'queued'
            AND j.next_run_at = w.due_at + faultline.parked_for()
        LEFT JOIN faultline.limits AS l ON l.name = split_part(w.limit_key, '=', 1)
        LEFT JOIN faultline.limit_states AS s ON s.limit_key = w.limit_key
        CROSS JOIN LATERAL (
            SELECT array_agg(p.job_id) AS ids, array_agg(r.lease_owner) AS workers,
                array_agg(p.taken_at) AS since
            FROM (SELECT t.job_id, t.taken_at FROM faultline.places AS t
                  WHERE t.limit_key = w.limit_key ORDER BY t.limit_key, t.job_id LIMIT %s) AS p
            LEFT JOIN faultline.jobs AS r ON r.id = p.job_id) AS taken
        WHERE w.job_id = %s
        """,
        (COUNT_LIMIT, COUNT_LIMIT, SHOWN_PLACES, job_id),
        read,
    )
