"""The inspector's JSON documents about schedules."""

from __future__ import annotations

from typing import Any

from faultline import schedule_view
from faultline.errors import UnknownSchedule
from faultline.inspector.reader import ReadTransaction
from faultline.statements import schedules
from faultline.statements.schedules import Firing, ScheduleProblem, ScheduleRecord

_FIRINGS = 50


async def every_schedule(tx: ReadTransaction) -> dict[str, Any]:
    return {"schedules": [_schedule(each) for each in await tx.read(schedules.schedules())]}


async def schedule(tx: ReadTransaction, name: str) -> dict[str, Any]:
    """One schedule, its next times, its newest firings, and why it does not fire."""
    found = await tx.read(schedules.find(name))
    if found is None:
        raise UnknownSchedule(
            f"there is no schedule {name!r}", hint="list the schedules: faultline schedules list"
        )
    firings = await tx.read(schedules.firings(name, limit=_FIRINGS))
    return {
        **_schedule(found),
        "upcoming": schedule_view.upcoming(found),
        "notes": schedule_view.notes(found),
        "firings": [_firing(found, each) for each in firings],
    }


def _schedule(record: ScheduleRecord) -> dict[str, Any]:
    """A schedule without its payload; times of firings are in its zone.

    Python would round the payload's numbers. The page of each job has it.
    """
    fields = schedule_view.document(record)
    del fields["payload"]
    next_at = next(iter(schedule_view.upcoming(record, 1)), None)
    last = record.last_planned_at
    return {
        **fields,
        "next_at": next_at,
        "next_in_seconds": next_at and (next_at - record.read_at).total_seconds(),
        "last_planned_at": last and schedule_view.in_zone(record, last),
    }


def _firing(record: ScheduleRecord, firing: Firing) -> dict[str, Any]:
    return {
        "planned_at": schedule_view.in_zone(record, firing.planned_at),
        "outcome": firing.outcome,
        "job_id": firing.job_id,
        "skipped": firing.skipped,
        "fired_at": schedule_view.in_zone(record, firing.fired_at),
    }


def problem(found: ScheduleProblem) -> dict[str, Any]:
    """A schedule in the overview's list of problems."""
    return {
        "name": found.name,
        "state": found.state,
        "late_seconds": found.late_seconds,
        "last_error": found.last_error,
    }
