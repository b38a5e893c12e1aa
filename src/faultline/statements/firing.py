"""Statements of the scheduler: which schedules are due, fire and plan them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from faultline.planned_times import Timing
from faultline.statements.schedules import OVERDUE_SECONDS
from faultline.statements.statement import Row, Statement


@dataclass(frozen=True, slots=True)
class DueSchedule:
    """A schedule that is due, has no next time yet, or lies too far ahead."""

    name: str
    revision: int
    timing: Timing
    missed: str
    missed_limit: int
    decided_until: datetime
    next_fire_at: datetime | None


class DueSchedules(NamedTuple):
    now: datetime  # by the database's clock
    next_fire_at: datetime | None  # of the schedules that are not due
    due: list[DueSchedule]


def due_schedules(*, limit: int, except_for: Sequence[str] = ()) -> Statement[DueSchedules]:
    """Schedules to fire or to plan, those without a next time first."""

    def read(rows: list[Row]) -> DueSchedules:
        return DueSchedules(rows[0][0], rows[0][1], [_due(row[2:]) for row in rows if row[2]])

    return Statement(
        """
        SELECT here.moment,
            (SELECT min(n.next_fire_at) FROM faultline.schedules AS n
             WHERE n.paused_at IS NULL AND n.next_fire_at > statement_timestamp()), due.*
        FROM (SELECT clock_timestamp() AS moment) AS here
        LEFT JOIN (
            SELECT s.name, s.revision, s.cron, s.every_seconds, coalesce(s.reanchored_at, s.anchor),
                s.time_zone, s.missed, s.missed_limit, s.decided_until, s.next_fire_at
            FROM faultline.schedules AS s
            WHERE s.paused_at IS NULL AND s.name <> ALL (%s::text[])
              AND (s.next_fire_at IS NULL OR s.next_fire_at <= statement_timestamp()
                   OR s.next_fire_at > statement_timestamp() + make_interval(secs => s.every_seconds))
            ORDER BY s.next_fire_at NULLS FIRST, s.name LIMIT %s) AS due ON true
        """,
        (list(except_for), limit),
        read,
    )


def _due(row: Row) -> DueSchedule:
    name, revision, cron, every_seconds, anchor, time_zone, *rest = row
    return DueSchedule(name, revision, Timing(cron, every_seconds, anchor, time_zone), *rest)


class Fired(NamedTuple):
    times: list[datetime]  # without those that had fired before
    job_ids: list[UUID]
    late_seconds: float | None  # of the newest


def fire(
    schedule: DueSchedule,
    planned: Sequence[datetime],
    *,
    next_fire_at: datetime,
    skipped: int,
    newest_skipped: datetime | None,
) -> Statement[Fired | None]:
    """Fire a schedule and advance it; None if another scheduler was first."""
    return Statement(
        """
        SELECT fired_times, job_ids, late_seconds
        FROM faultline.fire_schedule(%s, %s, %s, %s::timestamptz[], %s, %s, %s)
        """,
        (
            schedule.name,
            schedule.revision,
            schedule.next_fire_at,
            list(planned),
            next_fire_at,
            skipped,
            newest_skipped,
        ),
        lambda rows: Fired(*rows[0]) if rows else None,
    )


def plan(
    schedule: DueSchedule, next_fire_at: datetime, *, reanchored: datetime | None = None
) -> Statement[bool]:
    """Set the next time; returns whether it was set by this call."""
    return Statement(
        "SELECT faultline.plan_schedule(%s, %s, %s, %s, %s)",
        (schedule.name, schedule.revision, schedule.next_fire_at, next_fire_at, reanchored),
        lambda rows: bool(rows[0][0]),
    )


def report_error(schedule: DueSchedule, error: str) -> Statement[bool]:
    """Record why a schedule cannot be planned; returns whether that is new."""
    return Statement(
        "SELECT faultline.report_schedule_error(%s, %s, %s)",
        (schedule.name, schedule.revision, error),
        lambda rows: bool(rows[0][0]),
    )


def schedule_states() -> Statement[dict[str, int]]:
    """How many schedules are paused, failing, overdue, undeclared or simply active."""
    return Statement(
        """
        SELECT CASE WHEN s.paused_at IS NOT NULL THEN 'paused'
            WHEN s.last_error IS NOT NULL THEN 'failing'
            WHEN s.next_fire_at < statement_timestamp() - make_interval(secs => %s) THEN 'overdue'
            WHEN u.name IS NOT NULL THEN 'undeclared' ELSE 'active' END AS state, count(*)
        FROM faultline.schedules AS s
        LEFT JOIN faultline.undeclared_schedules() AS u (name) ON u.name = s.name GROUP BY 1
        """,
        (OVERDUE_SECONDS,),
        lambda rows: {str(state): int(number) for state, number in rows},
    )
