"""Planned times: of a cron expression in a time zone, or of an interval.

A planned time that the zone's clock skips fires at the first moment after the gap, and one that the clock
shows twice fires the first time. Expressions whose minute or hour begins with `*` follow real time instead:
they fire in both hours, and never in the gap. docs/schedules.md states the rule.

cronsim and zoneinfo are imported on use: most workers and commands have no schedule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from faultline.errors import InvalidSchedule

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from cronsim import CronSim

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COUNTED = 1_000  # more times that a cron expression missed are not counted
_FIELDS = 5
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Timing:
    """When a schedule fires: `cron`, or every so many seconds from an anchor."""

    cron: str | None = None
    every_seconds: int | None = None
    anchor: datetime = EPOCH
    time_zone: str = "UTC"

    def check(self) -> Timing:
        """Raise InvalidSchedule unless it has a next time; return itself."""
        self.next_after(datetime.now(UTC))
        return self

    def next_after(self, moment: datetime) -> datetime:
        """The first planned time after a moment."""
        if self.every_seconds is not None:
            return self._multiple(self._periods(moment) + 1)
        return self._next_of_cron(moment)

    def upcoming(self, moment: datetime, count: int) -> list[datetime]:
        """The next planned times after a moment."""
        found: list[datetime] = []
        for _ in range(count):
            moment = self.next_after(moment)
            found.append(moment)
        return found

    def newest(self, first: datetime, until: datetime, limit: int) -> list[datetime]:
        """The last `limit` planned times from `first` to `until`, oldest first."""
        if self.every_seconds is not None:
            last = self._periods(until)
            earliest = max(self._periods(first - _MICROSECOND) + 1, last - limit + 1)
            return [self._multiple(number) for number in range(earliest, last + 1)]
        found: list[datetime] = []
        before = until + _MICROSECOND
        while len(found) < limit and (before := self._previous_of_cron(before)) >= first:
            found.append(before)
        return found[::-1]

    def count(self, first: datetime, before: datetime) -> int:
        """How many planned times lie from `first` to before a time.

        Times of a cron expression are counted up to COUNTED.
        """
        if self.every_seconds is not None:
            return self._periods(before - _MICROSECOND) - self._periods(first - _MICROSECOND)
        times = islice(self._backwards(before), COUNTED)
        return sum(1 for _ in takewhile(lambda time: time >= first, times))

    # ── intervals ────────────────────────────────────────────────────────────────────────────────

    def _periods(self, moment: datetime) -> int:
        return (moment - self.anchor) // self._period

    def _multiple(self, number: int) -> datetime:
        return (self.anchor + number * self._period).astimezone(UTC)

    @property
    def _period(self) -> timedelta:
        assert self.every_seconds is not None  # noqa: S101 - the callers have checked
        return timedelta(seconds=self.every_seconds)

    # ── cron ─────────────────────────────────────────────────────────────────────────────────────

    # Going forwards, cronsim 2.8 steps by whole hours, and misses a full hour right after the clock has
    # changed by half an hour (Lord Howe); going backwards it misses others. Each direction checks the other.

    def _next_of_cron(self, moment: datetime) -> datetime:
        found = next(self._forwards(moment), None)
        if found is None:
            raise InvalidSchedule(f"the cron expression {self.cron!r} has no next time")
        for earlier in self._backwards(found):
            if earlier <= moment:
                break
            found = earlier
        return found

    def _previous_of_cron(self, moment: datetime) -> datetime:
        found = next(self._backwards(moment), None)
        if found is None:
            return datetime.min.replace(tzinfo=UTC)
        for later in self._forwards(found):
            if later >= moment:
                break
            found = later
        return found

    def _forwards(self, moment: datetime) -> Iterator[datetime]:
        """The times after a moment, earliest first."""
        return (time.astimezone(UTC) for time in self._iterate(moment))

    def _backwards(self, moment: datetime) -> Iterator[datetime]:
        """The times before a moment, latest first."""
        for time in self._iterate(moment, reverse=True):
            in_utc = time.astimezone(UTC)
            if in_utc < moment:
                yield in_utc

    def _iterate(self, moment: datetime, *, reverse: bool = False) -> CronSim:
        from cronsim import CronSim, CronSimError

        zone = find_zone(self.time_zone)
        cron = self.cron or ""
        if len(cron.split()) != _FIELDS:
            raise InvalidSchedule(
                f"the cron expression {cron[:100]!r} has not five fields",
                hint="minute, hour, day of the month, month, day of the week: '0 6 * * 1-5'",
            )
        try:
            return CronSim(cron, moment.astimezone(zone), reverse=reverse)
        except CronSimError as error:
            raise InvalidSchedule(
                f"the cron expression {cron[:100]!r} cannot be read: {str(error).lower()}",
                hint="minute, hour, day of the month, month, day of the week: '0 6 * * 1-5'",
            ) from None


def find_zone(name: str) -> ZoneInfo:
    """The time zone of this name; InvalidSchedule if there is none."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError):
        raise InvalidSchedule(
            f"there is no time zone {str(name)[:100]!r}",
            hint="use a name of the IANA database: 'Europe/Berlin', 'America/New_York', 'UTC'",
        ) from None
