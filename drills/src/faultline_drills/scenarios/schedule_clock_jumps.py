"""The database's clock jumps through a year with daylight saving in three zones.

Eight schedulers fire a daily schedule in each of three zones while the server's clock jumps to the six
nights on which a zone's clock changes, and over each change. A time that the zone skips must fire at
the first moment after the gap, and one that it shows twice the first time only: PostgreSQL's own time
zones say which day each firing belongs to, and each day must have one. A schedule that follows the
clock fires every half hour, through gaps and repeated hours. In the end the clock goes back by hours,
and no planned time may fire again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString

from faultline.postgres.sessions import run
from faultline.statements import schedules
from faultline_drills.clock import missing_requirement
from faultline_drills.clock.movable import MovableClock
from faultline_drills.context import DrillContext
from faultline_drills.scenario import scenario
from faultline_drills.schedules import (
    SchedulerFleet,
    expect_agreement,
    expect_firings,
    expect_once,
    put_schedule,
)
from faultline_drills.schedules.expectations import fired_times

SCHEDULERS = 8
BEGINNING = datetime(2025, 2, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Zone:
    """A zone, two daily times that its clock skips or repeats, and when it changes."""

    name: str
    skipped: str
    shown_twice: str
    spring: str
    autumn: str

    @property
    def nights(self) -> tuple[datetime, datetime]:
        return datetime.fromisoformat(self.spring), datetime.fromisoformat(self.autumn)


ZONES = (
    _Zone("Europe/Berlin", "15 2 * * *", "30 2 * * *", "2025-03-30T01:00Z", "2025-10-26T01:00Z"),
    _Zone("America/New_York", "30 2 * * *", "30 1 * * *", "2025-03-09T07:00Z", "2025-11-02T06:00Z"),
    _Zone(
        "Australia/Lord_Howe", "15 2 * * *", "45 1 * * *", "2025-10-04T15:30Z", "2025-04-05T15:00Z"
    ),
)
_STEPS = (-65, -35, -5, 25, 55, 85)  # minutes from the change, half an hour apart
# Numbers of the schedules beside the daily ones of each zone.
_SKIPPED, _HALF_HOURS, _INTERVAL = 10, 90, 91
_NIGHT = timedelta(hours=3)
_INTERVAL_SECONDS = 1_800
_BACK_SECONDS = 4 * 3_600
_FIRES_SOON = timedelta(minutes=1)
# Days between the first and the last that do not have one firing.
_LOCAL_DAYS: LiteralString = """
    WITH fired AS (SELECT (t AT TIME ZONE %s)::date AS day FROM unnest(%s::timestamptz[]) AS t)
    SELECT d.day::date, (SELECT count(*) FROM fired AS f WHERE f.day = d.day::date) AS times
    FROM generate_series((SELECT min(day) FROM fired), (SELECT max(day) FROM fired), interval '1 day')
        AS d (day)
    WHERE (SELECT count(*) FROM fired AS f WHERE f.day = d.day::date) <> 1 ORDER BY 1 LIMIT 5
"""
_IS_DUE: LiteralString = """
    SELECT count(*) FROM faultline.schedules WHERE paused_at IS NULL
    AND coalesce(next_fire_at <= clock_timestamp(), true)
"""
_REANCHORED: LiteralString = """
    SELECT count(*) FROM faultline.schedules WHERE reanchored_at IS NOT NULL AND next_fire_at IS NOT NULL
"""


@scenario(
    shows=("clock_jumps", "setbacks", "commits"),
    server_settings={"fsync": "off"},
    missing_requirement=missing_requirement,
)
def schedule_clock_jumps(drill: DrillContext) -> None:
    clock = _Clock(drill)
    clock.set(BEGINNING)
    for number, zone in enumerate(ZONES):
        daily: dict[str, Any] = {"tz": zone.name, "missed": "all", "missed_limit": 1000}
        put_schedule(drill, number, zone.shown_twice, **daily)
        put_schedule(drill, _SKIPPED + number, zone.skipped, **daily)
    put_schedule(drill, _HALF_HOURS, "*/30 * * * *", tz=ZONES[0].name, missed="once")
    put_schedule(drill, _INTERVAL, every=_INTERVAL_SECONDS, missed="once")
    fleet = SchedulerFleet(drill)
    fleet.start(SCHEDULERS)
    _wait_until_fired(drill)
    nights = sorted(night for zone in ZONES for night in zone.nights)
    for night in nights:
        for minutes in _STEPS:
            clock.set(night + timedelta(minutes=minutes))
            _wait_until_fired(drill)
        _expect_half_hours(drill, night)
    end = nights[-1] + timedelta(minutes=_STEPS[-1])
    _set_back(drill, clock, end)
    fleet.expect_alive()
    _pause_all(drill)
    fleet.end()
    expect_once(drill)
    expect_agreement(drill)
    for number, zone in enumerate(ZONES):
        _expect_each_day(drill, number, zone.name, end)
        _expect_each_day(drill, _SKIPPED + number, zone.name, end)
        gap, _ = zone.nights
        before, after = gap - _NIGHT, gap + _NIGHT
        expect_firings(drill, _SKIPPED + number, [gap], after=before, until=after)


class _Clock:
    """The server's clock, by the moment that it is to show."""

    def __init__(self, drill: DrillContext) -> None:
        self._drill = drill
        self._clock = MovableClock(drill.server.data_dir.parent)
        drill.server.shut_down(mode="fast")
        drill.server.environment.update(self._clock.environment)
        drill.server.start()
        drill.query("SELECT 1")  # opens a new session

    def set(self, moment: datetime) -> None:
        seconds = round((moment - datetime.now(UTC)).total_seconds())
        self._clock.move(seconds)
        self._drill.inject("clock_jump", "postgres", to=f"{moment:%Y-%m-%d %H:%M}")


def _wait_until_fired(drill: DrillContext) -> None:
    drill.wait_until(lambda: drill.count(_IS_DUE) == 0, "the firing of all due schedules")


def _expect_half_hours(drill: DrillContext, night: datetime) -> None:
    """Expect even half hours through the change of the clock, whatever the zone shows."""
    first = night + timedelta(minutes=_STEPS[0] + 5)
    planned = [first + timedelta(minutes=30 * step) for step in range(len(_STEPS) - 1)]
    for number in (_HALF_HOURS, _INTERVAL):
        expect_firings(
            drill, number, planned, after=first - timedelta(minutes=1), until=planned[-1]
        )


def _set_back(drill: DrillContext, clock: _Clock, end: datetime) -> None:
    """Set the clock back by hours, let the interval fire again, and go on to the end."""
    earlier = end - timedelta(seconds=_BACK_SECONDS)
    ((before,),) = drill.query("SELECT count(*) FROM faultline.jobs")
    clock.set(earlier)
    drill.inject("setback", "postgres", seconds=_BACK_SECONDS)
    drill.wait_until(lambda: drill.count(_REANCHORED) == 1, "an interval that counts from now on")
    jobs = drill.count("SELECT count(*) FROM faultline.jobs")
    drill.expect(jobs == before, f"{jobs - before} jobs of times that had fired before")
    clock.set(earlier + timedelta(seconds=_INTERVAL_SECONDS) + _FIRES_SOON)
    drill.wait_until(
        lambda: drill.count("SELECT count(*) FROM faultline.jobs") == jobs + 1,
        "a firing of the interval",
    )
    clock.set(end)
    _wait_until_fired(drill)


def _pause_all(drill: DrillContext) -> None:
    for (name,) in drill.query("SELECT name FROM faultline.schedules"):
        run(drill.conn, schedules.pause(name))


def _expect_each_day(drill: DrillContext, number: int, zone: str, end: datetime) -> None:
    """Expect one firing on each day of the zone, from the first one on."""
    fired = fired_times(drill, number, after=BEGINNING, until=end)
    for day, count in drill.query(_LOCAL_DAYS, [zone, fired]):
        drill.expect(False, f"schedule {number} in {zone} fired {count} times on {day}")
    days = (end - BEGINNING).days
    drill.expect(
        days - 1 <= len(fired) <= days + 1,
        f"schedule {number} in {zone} fired {len(fired)} times in {days} days",
    )
