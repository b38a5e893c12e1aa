"""What the leading reconciler reads several times a second, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass

from faultline.statements.leadership import ACTING_LEADER_KEY, Heartbeat
from faultline.statements.statement import Statement
from faultline.statements.workers import LOCK_CLASS


@dataclass(frozen=True, slots=True)
class Survey:
    """The last three fields are None unless the survey asked for the less urgent work."""

    registered: int  # workers that are not marked lost
    vanished: list[str]  # registered workers whose sessions have all ended
    next_expiry_seconds: float | None  # None: there is no lease
    clock_seconds: float = 0.0  # the database's clock, in seconds since 1970
    others: int = 0  # registered workers without the one that asks
    has_beaten: bool = False  # the leader's heartbeat was sent
    has_expired_jobs: bool | None = None
    has_limits: bool | None = None
    next_fire_seconds: float | None = None  # 0: a schedule is to be planned; None: there are none


def survey(
    own_worker: str = "", *, heartbeat: Heartbeat | None = None, is_complete: bool = False
) -> Statement[Survey]:
    """Look for dead workers and lapsed leases, and send the leader's heartbeat if it is due.

    A complete survey also looks for expired jobs, for limits and for schedules.
    """
    number, after = heartbeat or (0, 0)
    key, last = ACTING_LEADER_KEY - number, ACTING_LEADER_KEY - after
    return Statement(
        """
        SELECT (SELECT count(*) FROM faultline.workers WHERE lost_at IS NULL),
            ARRAY(SELECT worker FROM faultline.vanished_workers()),
            (SELECT extract(epoch FROM min(lease_expires_at) - clock_timestamp())::float8
            FROM faultline.jobs WHERE state = 'running'),
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
                FROM faultline.schedules AS s WHERE s.paused_at IS NULL HAVING count(*) > 0) END
        """,
        (
            own_worker,
            *(heartbeat is not None, LOCK_CLASS, key, after > 0, LOCK_CLASS, last),
            *(is_complete, is_complete, is_complete),
        ),
        lambda rows: Survey(*rows[0]),
    )
