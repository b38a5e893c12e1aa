"""What people are shown of a schedule: its next times, and what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from faultline.errors import InvalidSchedule
from faultline.planned_times import find_zone
from faultline.statements.schedules import Firing, ScheduleRecord
from faultline.wording import duration

UPCOMING = 5


def upcoming(schedule: ScheduleRecord, count: int = UPCOMING) -> list[datetime]:
    """The next times, in the schedule's zone; none if it is paused or cannot fire."""
    if schedule.paused_at is not None:
        return []
    try:
        zone = find_zone(schedule.time_zone)
        first = schedule.next_fire_at or schedule.timing.next_after(schedule.read_at)
        times = [first, *schedule.timing.upcoming(first, count - 1)]
    except InvalidSchedule:
        return []
    return [time.astimezone(zone) for time in times]


def in_zone(schedule: ScheduleRecord, time: datetime) -> datetime:
    """The time in the schedule's zone, or unchanged if the zone is unknown."""
    try:
        return time.astimezone(find_zone(schedule.time_zone))
    except InvalidSchedule:
        return time


def notes(schedule: ScheduleRecord) -> list[str]:
    """Why it does not fire, or will not fire as expected."""
    found = []
    if schedule.paused_at is not None:
        because = f": {schedule.paused_reason}" if schedule.paused_reason else ""
        found.append(f"it is paused since {schedule.paused_at:%Y-%m-%d %H:%M:%S %Z}{because}")
    if schedule.last_error is not None:
        found.append(f"its next time cannot be computed: {schedule.last_error}")
    elif schedule.state == "overdue":
        found.append(
            f"it should have fired {duration(schedule.late_seconds)} ago: a worker or a reconciler"
            " must run, and lead"
        )
    if schedule.ahead_seconds > 0:
        waits = "" if schedule.every_seconds else ", so it waits until the clock is there again"
        found.append(
            f"its last planned time is {duration(schedule.ahead_seconds)} in the future, because the"
            f" database's clock was set back; a time that has fired does not fire again{waits}"
        )
    if schedule.is_undeclared:
        found.append("code declared it, but the code of no live worker does; it still fires")
    return found


def document(schedule: ScheduleRecord) -> dict[str, Any]:
    """The fields of a schedule as JSON shows them."""
    return {
        "name": schedule.name,
        "state": schedule.state,
        "cron": schedule.cron,
        "every_seconds": schedule.every_seconds,
        "anchor": schedule.anchor if schedule.every_seconds else None,
        "time_zone": schedule.time_zone,
        "task": schedule.task,
        "queue": schedule.queue,
        "priority": schedule.priority,
        "max_attempts": schedule.max_attempts,
        "payload": schedule.payload,
        "missed": schedule.missed,
        "missed_limit": schedule.missed_limit,
        "jitter_seconds": schedule.jitter_seconds,
        "declared_by": schedule.declared_by,
        "is_undeclared": schedule.is_undeclared,
        "revision": schedule.revision,
        "paused_at": schedule.paused_at,
        "paused_reason": schedule.paused_reason,
        "next_fire_at": schedule.next_fire_at,
        "last_planned_at": schedule.last_planned_at,
        "last_fired_at": schedule.last_fired_at,
        "last_job_id": schedule.last_job_id,
        "last_error": schedule.last_error,
    }


def full_document(schedule: ScheduleRecord, firings: Sequence[Firing]) -> dict[str, Any]:
    """The same with its next times, its newest firings and its notes."""
    return {
        **document(schedule),
        "upcoming": upcoming(schedule),
        "notes": notes(schedule),
        "firings": [
            {
                "planned_at": firing.planned_at,
                "outcome": firing.outcome,
                "job_id": firing.job_id,
                "skipped": firing.skipped,
                "fired_at": firing.fired_at,
            }
            for firing in firings
        ],
    }
