"""No scheduler runs for a year; then eight of them find every missed time at once.

All eight read the schedules before any of them fires, as if each had been stopped in between, and they
fire together. None of them does anything after its firing, as if it died then. `skip` must enqueue no
job, or one if its newest time is at most a minute late; `once` one job; `all` as many as its limit.
Every other time must be recorded as skipped. A paused schedule fires nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, LiteralString

from faultline.postgres.sessions import Connection, run
from faultline.reconciler.scheduler import decide
from faultline.statements import firing, schedules
from faultline.statements.firing import DueSchedules
from faultline_drills.clients.concurrent_sessions import run_concurrently
from faultline_drills.context import DrillContext
from faultline_drills.scenario import scenario
from faultline_drills.schedules import expect_agreement, expect_firings, expect_once, put_schedule

SCHEDULERS = 8
_YEAR = timedelta(days=365)
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_MOST = 20  # the limit of `all`
_COUNTED = 1_000  # more times of a cron expression are not counted
_HOURS_SINCE = 2  # since the newest time of a daily schedule
_BEFORE_THE_YEAR: LiteralString = """
    UPDATE faultline.schedules SET next_fire_at = %s, decided_until = %s WHERE name = %s
"""
_SKIPPED: LiteralString = """
    SELECT coalesce(sum(skipped), 0) FROM faultline.schedule_firings
    WHERE schedule = %s AND outcome = 'skipped'
"""
_STATE: LiteralString = "SELECT next_fire_at FROM faultline.schedules WHERE name = %s"


@dataclass(frozen=True, slots=True)
class _Downtime:
    """A schedule that missed a year, and what it must do about that."""

    timing: dict[str, Any]
    first: datetime  # of the missed times
    newest: datetime
    period: timedelta
    fires: int
    next_fire_at: datetime
    counted: int = 10**9  # the most skipped times that are counted


@scenario(shows=("downtimes", "commits"), breaks_naive=True)
def schedule_downtime(drill: DrillContext) -> None:
    downtimes = _downtimes(drill)
    for number, downtime in enumerate(downtimes):
        put_schedule(drill, number, **downtime.timing)
        before = downtime.first - timedelta(seconds=1)
        drill.conn.execute(_BEFORE_THE_YEAR, [downtime.first, before, f"schedule-{number}"])
        drill.inject("downtime", f"schedule-{number}", days=_YEAR.days)
    run(drill.conn, schedules.pause(f"schedule-{len(downtimes) - 1}"))
    found = [run(drill.conn, firing.due_schedules(limit=100)) for _ in range(SCHEDULERS)]
    run_concurrently(drill, [_fire_all(each) for each in found])
    expect_agreement(drill)
    expect_once(drill)
    *active, paused = enumerate(downtimes)
    for number, downtime in active:
        _judge(drill, number, downtime)
    before = paused[1].first - _HOUR
    expect_firings(drill, paused[0], [], after=before, until=paused[1].newest)


def _downtimes(drill: DrillContext) -> list[_Downtime]:
    ((now,),) = drill.query("SELECT date_trunc('second', clock_timestamp())")
    newest_day = now.replace(minute=0, second=0) - timedelta(hours=_HOURS_SINCE)
    daily = {
        "period": _DAY,
        "first": newest_day - _YEAR,
        "newest": newest_day,
        "next_fire_at": newest_day + _DAY,
        "counted": _COUNTED,
    }
    cron = f"0 {newest_day.hour} * * *"
    anchor = now - timedelta(minutes=30)
    hourly = {
        "period": _HOUR,
        "first": anchor - _YEAR,
        "newest": anchor,
        "next_fire_at": anchor + _HOUR,
    }
    interval = {"every": _HOUR, "anchor": anchor}
    just_now = now - timedelta(seconds=5)
    on_time = {**hourly, "first": just_now - _YEAR, "newest": just_now}
    on_time["next_fire_at"] = just_now + _HOUR
    policies: list[tuple[dict[str, Any], int]] = [
        ({"missed": "skip"}, 0),
        ({"missed": "once"}, 1),
        ({"missed": "all", "missed_limit": _MOST}, _MOST),
    ]
    found = [
        _Downtime({"cron": cron, "tz": "UTC", **policy}, fires=fires, **daily)
        for policy, fires in policies
    ]
    found += [
        _Downtime({**interval, **policy}, fires=fires, **hourly) for policy, fires in policies
    ]
    skips_less = {"every": _HOUR, "anchor": just_now, "missed": "skip"}
    paused = {**interval, "missed": "all"}
    return [*found, _Downtime(skips_less, fires=1, **on_time), _Downtime(paused, fires=0, **hourly)]


def _fire_all(found: DueSchedules) -> Callable[[Connection], None]:
    """What a scheduler does with the due schedules that it has read."""

    def fire(conn: Connection) -> None:
        for schedule in found.due:
            decision = decide(schedule, found.now)
            statement = firing.fire(
                schedule,
                decision.planned,
                next_fire_at=decision.next_fire_at,
                skipped=decision.skipped,
                newest_skipped=decision.newest_skipped,
            )
            run(conn, statement)

    return fire


def _judge(drill: DrillContext, number: int, downtime: _Downtime) -> None:
    name, period = f"schedule-{number}", downtime.period
    planned = [downtime.newest - step * period for step in range(downtime.fires)]
    before = downtime.first - period
    expect_firings(drill, number, planned, after=before, until=downtime.next_fire_at)
    missed = (downtime.newest - downtime.first) // period + 1
    skipped, expected = (
        drill.count(_SKIPPED, [name]),
        min(missed - downtime.fires, downtime.counted),
    )
    drill.expect(skipped == expected, f"{name} skipped {skipped} times, not {expected}")
    ((next_fire_at,),) = drill.query(_STATE, [name])
    drill.expect(
        next_fire_at == downtime.next_fire_at,
        f"{name} fires next at {next_fire_at}, not at {downtime.next_fire_at}",
    )
