"""What the leading reconciler reads several times a second, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from faultline.statements.leadership import ACTING_LEADER_KEY, LeaderHeartbeat
from faultline.statements.statement import Row, Statement
from faultline.statements.workers import LOCK_CLASS


class Wake(NamedTuple):
    """What faultline.wake_for_due_jobs did."""

    notified: int  # queues
    next_due_seconds: float | None  # None: no job of an idle worker's queue waits for its time
    took_seconds: float


@dataclass(frozen=True, slots=True)
class Survey:
    """Fields that are None by default are read if the survey asks for them."""

    registered: int  # workers that are not marked lost
    vanished: list[str]  # registered workers whose sessions have all ended
    next_expiry_seconds: float | None  # None: there is no lease
    clock_seconds: float = 0.0  # the database's clock, in seconds since 1970
    others: int = 0  # registered workers without the one that asks
    has_beaten: bool = False  # the leader's heartbeat was sent
    has_expired_jobs: bool | None = None
    has_limits: bool | None = None
    next_fire_seconds: float | None = None  # 0: a schedule is to be planned; None: there are none
    wake: Wake | None = None  # if the survey was to wake idle workers


def survey(
    own_worker: str = "",
    *,
    heartbeat: LeaderHeartbeat | None = None,
    is_complete: bool = False,
    wakes: bool = False,
) -> Statement[Survey]:
    """Look for dead workers and lapsed leases, and send the leader's heartbeat.

    A complete survey also looks for expired jobs, for limits and for schedules. With `wakes` it notifies idle
    workers of jobs that became due.
    """

    def read(rows: list[Row]) -> Survey:
        *fields, notified, next_due_seconds, took_seconds = rows[0]
        wake = Wake(notified, next_due_seconds, took_seconds) if wakes else None
        return replace(Survey(*fields), wake=wake)

    number, after = heartbeat or (0, 0)
    key, last = ACTING_LEADER_KEY - number, ACTING_LEADER_KEY - after
    return Statement(
        """
        SELECT (SELECT count(*) FROM faultline.workers WHERE lost_at IS NULL),
            ARRAY(SELECT worker FROM faultline.vanished_workers()),
            extract(epoch FROM faultline.next_expiry() - clock_timestamp())::float8,
            extract(epoch FROM clock_timestamp())::float8,
            (SELECT count(*) FROM faultline.workers WHERE lost_at IS NULL AND id <> %s),
            CASE WHEN NOT %s THEN false WHEN NOT pg_try_advisory_lock(%s, %s) THEN false
                WHEN %s THEN pg_advisory_unlock(%s, %s) ELSE true END,
            CASE WHEN %s THEN EXISTS (SELECT FROM faultline.jobs AS e WHERE e.state = 'queued'
                AND e.expires_at <= statement_timestamp() AND e.attempts = 0) END,
            CASE WHEN %s THEN faultline.limits_in_use() END,
            CASE WHEN %s THEN (SELECT CASE WHEN bool_or(s.next_fire_at IS NULL
                    OR s.next_fire_at > clock_timestamp() + make_interval(secs => s.every_seconds))
                THEN 0 ELSE extract(epoch FROM min(s.next_fire_at) - clock_timestamp())::float8 END
                FROM faultline.schedules AS s WHERE s.paused_at IS NULL HAVING count(*) > 0) END,
            woken.notified, woken.next_due_seconds, woken.took_seconds
        FROM (SELECT 1) AS here LEFT JOIN LATERAL faultline.wake_for_due_jobs() AS woken ON %s
        """,
        (
            own_worker,
            *(heartbeat is not None, LOCK_CLASS, key, after > 0, LOCK_CLASS, last),
            *(is_complete, is_complete, is_complete, wakes),
        ),
        read,
    )
