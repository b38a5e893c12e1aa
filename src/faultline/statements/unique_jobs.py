"""The unique key of a job, and the job that holds it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from faultline.statements.statement import Statement


@dataclass(frozen=True, slots=True)
class UniqueJob:
    """How a job that was enqueued with `unique` stands to its key."""

    key: str
    while_: str
    held_until: datetime | None
    replaced: int
    rescheduled: int
    changed_at: datetime | None
    counts: bool  # an enqueue with this key meets the job
    holder: UUID | None  # another job that counts for the key


def of_job(job_id: UUID) -> Statement[UniqueJob | None]:
    return Statement(
        """
        SELECT u.unique_key, u.while_, u.held_until, u.replaced, u.rescheduled, u.changed_at,
            is_held.by_it, (SELECT o.job_id FROM faultline.unique_keys AS k
                JOIN faultline.unique_jobs AS o ON o.job_id = k.job_id
                JOIN faultline.jobs AS other ON other.id = o.job_id
                WHERE k.unique_key = u.unique_key AND k.job_id <> u.job_id
                AND (o.held_until > clock_timestamp()
                    OR other.state = 'queued' AND other.fencing_token = 0
                    OR o.while_ = 'unfinished' AND other.state IN ('queued', 'running')))
        FROM faultline.unique_jobs AS u JOIN faultline.jobs AS j ON j.id = u.job_id
        CROSS JOIN LATERAL (SELECT coalesce(u.held_until > clock_timestamp(), false)
            OR j.state = 'queued' AND j.fencing_token = 0
            OR u.while_ = 'unfinished' AND j.state IN ('queued', 'running')) AS is_held (by_it)
        WHERE u.job_id = %s
        """,
        (job_id,),
        lambda rows: UniqueJob(*rows[0]) if rows else None,
    )
