"""Cron expressions and intervals: over a year of clock changes, and their errors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from faultline.errors import InvalidSchedule
from faultline.planned_times import COUNTED, Timing

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
ZONES = (BERLIN, NEW_YORK, LORD_HOWE)
MINUTE, MICROSECOND = timedelta(minutes=1), timedelta(microseconds=1)
YEAR = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))


def changes_of(zone: str) -> list[datetime]:
    """The moments at which the zone's clock changes in 2026."""
    moments = [YEAR[0] + number * 15 * MINUTE for number in range(365 * 96)]
    offsets = [(moment, moment.astimezone(ZoneInfo(zone)).utcoffset()) for moment in moments]
    return [later for (_, before), (later, after) in pairwise(offsets) if before != after]


def matches(field: str, value: int) -> bool:
    """A second reading of the forms of a field that the test below uses."""
    whole, _, step = field.partition("/")
    first, _, last = whole.partition("-")
    low, high = (0, 59) if whole == "*" else (int(first), int(last or first))
    return low <= value <= high and (value - low) % int(step or 1) == 0


def shown_times(cron: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    """Every minute at which the zone's clock shows a time of the expression."""
    minute, hour = cron.split()[:2]
    moments = [start + number * MINUTE for number in range(int((end - start) / MINUTE))]
    local = [(moment, moment.astimezone(ZoneInfo(zone))) for moment in moments]
    return [
        at for at, shown in local if matches(minute, shown.minute) and matches(hour, shown.hour)
    ]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    "cron",
    ["*/15 * * * *", "0 * * * *", "0 */2 * * *", "30 */3 * * *", "*/20 2 * * *", "* 1-3 * * *"],
)
def test_expressions_that_begin_with_a_star_fire_whenever_the_clock_shows_their_time(
    cron: str, zone: str
) -> None:
    """Also in the hour that is shown twice, and never in the one that is skipped."""
    timing = Timing(cron, time_zone=zone)
    for change in changes_of(zone):
        start, end = change - timedelta(days=2), change + timedelta(days=2)
        expected = shown_times(cron, zone, start, end)
        found, moment = [], start - MICROSECOND
        while (moment := timing.next_after(moment)) < end:
            found.append(moment)
        assert found == expected
        assert timing.newest(start, end - MICROSECOND, 10_000) == expected


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    "cron", ["30 2 * * *", "0 2 * * *", "30 1 * * *", "45 1 * * *", "15 0 * * *"]
)
def test_a_fixed_time_fires_once_on_every_day_of_the_year(cron: str, zone: str) -> None:
    timing = Timing(cron, time_zone=zone)
    start = datetime(2026, 1, 1, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    times = timing.upcoming(start, 365)
    days = [time.astimezone(ZoneInfo(zone)).date() for time in times]
    assert len(set(days)) == 365
    assert [b - a for a, b in pairwise(days)] == [timedelta(days=1)] * 364
    assert timing.newest(start, times[-1], 1000) == times


@pytest.mark.parametrize(
    ("zone", "cron", "day", "fires"),
    [
        # In the gap: at the first moment after it.
        (BERLIN, "30 2 * * *", (2026, 3, 29), "2026-03-29T03:00:00+02:00"),
        (NEW_YORK, "30 2 * * *", (2026, 3, 8), "2026-03-08T03:00:00-04:00"),
        (LORD_HOWE, "15 2 * * *", (2026, 10, 4), "2026-10-04T02:30:00+11:00"),
        # Shown twice: the first time.
        (BERLIN, "30 2 * * *", (2026, 10, 25), "2026-10-25T02:30:00+02:00"),
        (NEW_YORK, "30 1 * * *", (2026, 11, 1), "2026-11-01T01:30:00-04:00"),
        (LORD_HOWE, "45 1 * * *", (2026, 4, 5), "2026-04-05T01:45:00+11:00"),
    ],
)
def test_a_time_that_does_not_exist_and_one_that_exists_twice(
    zone: str, cron: str, day: tuple[int, int, int], fires: str
) -> None:
    midnight = datetime(*day, tzinfo=ZoneInfo(zone))
    found = Timing(cron, time_zone=zone).next_after(midnight).astimezone(ZoneInfo(zone))
    assert found.isoformat() == fires


@pytest.mark.parametrize("zone", ZONES)
def test_the_next_time_does_not_depend_on_where_the_search_begins(zone: str) -> None:
    timing = Timing("20 */5 * * *", time_zone=zone)
    for change in changes_of(zone):
        begin = change - timedelta(hours=12)
        for quarter in range(96):
            moment = begin + quarter * 15 * MINUTE
            following = timing.next_after(moment)
            assert timing.next_after(following - MICROSECOND) == following
            assert timing.newest(moment - timedelta(days=1), following, 1) == [following]


def test_the_newest_times_of_a_year_are_found_without_reading_the_year() -> None:
    timing = Timing("* * * * *", time_zone=BERLIN)
    assert timing.newest(*YEAR, 3) == [YEAR[1] - 2 * MINUTE, YEAR[1] - MINUTE, YEAR[1]]
    assert timing.count(*YEAR) == COUNTED


def test_an_interval_fires_at_multiples_from_its_anchor() -> None:
    anchor = datetime(2026, 1, 1, 0, 0, 7, tzinfo=UTC)
    timing = Timing(every_seconds=600, anchor=anchor)
    assert timing.next_after(anchor) == anchor + 10 * MINUTE
    assert timing.next_after(anchor - MICROSECOND) == anchor
    assert timing.next_after(anchor - timedelta(days=1, seconds=1)) == anchor - timedelta(days=1)
    assert timing.newest(anchor, anchor + 25 * MINUTE, 2) == [
        anchor + 10 * MINUTE,
        anchor + 20 * MINUTE,
    ]
    assert timing.newest(anchor + MINUTE, anchor + 2 * MINUTE, 5) == []
    assert timing.count(anchor, anchor + 20 * MINUTE) == 2


@pytest.mark.parametrize(
    "cron",
    [
        "",
        "* * * *",
        "61 * * * *",
        "0 0 30 2 *",
        "@daily",
        "0 0 0 * * *",
        "x * * * *",
        "*/0 * * * *",
    ],
)
def test_an_expression_that_cannot_be_read_is_refused(cron: str) -> None:
    with pytest.raises(InvalidSchedule, match="cron expression"):
        Timing(cron).check()


@pytest.mark.parametrize("zone", ["Mars/Phobos", "", "../etc/passwd", "Europe/berlin "])
def test_an_unknown_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(InvalidSchedule, match="time zone"):
        Timing("0 6 * * *", time_zone=zone).check()
