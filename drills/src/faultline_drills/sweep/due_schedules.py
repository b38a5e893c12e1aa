"""The schedules that a swept scheduler finds: due ones, and a new one.

Their next times lie far apart, so that a scheduler sends the same messages in every run.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, LiteralString

from faultline.postgres.sessions import run
from faultline.schedules import make_schedule
from faultline.statements import schedules
from faultline_drills.context import DrillContext
from faultline_drills.workload.tasks import note

_EVERY = timedelta(days=1)
_SINCE = timedelta(hours=2)  # since the newest missed time
_MISSED = 3
# The policy of each schedule, and how many of its three missed times fire; None: it is new.
_POLICIES: tuple[tuple[dict[str, Any], int | None], ...] = (
    ({"missed": "all"}, 3),
    ({"missed": "once"}, 1),
    ({"missed": "skip"}, 0),
    ({"missed": "all", "missed_limit": 2}, 2),
    ({}, None),
)
_MISS: LiteralString = """
    UPDATE faultline.schedules SET next_fire_at = %s, decided_until = %s WHERE name = %s
"""
_WITHOUT_NEXT_TIME: LiteralString = """
    SELECT count(*) FROM faultline.schedules WHERE coalesce(next_fire_at <= clock_timestamp(), true)
"""
_FIRED: LiteralString = """
    SELECT s.name, s.next_fire_at,
           (SELECT count(*) FROM faultline.jobs AS j
            WHERE j.payload ->> 'number' = s.payload ->> 'number' AND j.scheduled_for IS NOT NULL)
    FROM faultline.schedules AS s ORDER BY s.name
"""


def leave_schedules(drill: DrillContext) -> None:
    """Add the schedules, of which all but one have missed three times."""
    ((now,),) = drill.query("SELECT date_trunc('second', clock_timestamp())")
    newest = now - _SINCE
    first = newest - (_MISSED - 1) * _EVERY
    for number, (policy, fires) in enumerate(_POLICIES):
        job = note.job(number=number)
        schedule = make_schedule(
            job, None, every=_EVERY, anchor=newest, name=f"schedule-{number}", **policy
        )
        run(drill.conn, schedules.add(schedule.definition))
        if fires is not None:
            before = first - timedelta(seconds=1)
            drill.conn.execute(_MISS, [first, before, schedule.name])


def all_have_fired(drill: DrillContext) -> bool:
    return drill.count(_WITHOUT_NEXT_TIME) == 0


def broken_firings(drill: DrillContext) -> list[str]:
    """The schedules that did not fire as often as their policy says."""
    found: list[str] = []
    rows = drill.query(_FIRED)
    for (name, next_fire_at, fired), (_, fires) in zip(rows, _POLICIES, strict=True):
        if next_fire_at is None or fired != (fires or 0):
            found.append(f"{name} fired {fired} times, not {fires or 0}; next: {next_fire_at}")
    return found
