"""Fires the schedules that are due. Runs beside the leading reconciler.

The leader only saves work: any number of schedulers may act at once, because faultline.fire_schedule decides
in the database. The database's clock says what is due; this process only computes times.
"""

from __future__ import annotations

import asyncio
import random
import time
from datetime import datetime, timedelta
from typing import NamedTuple

from faultline.errors import FaultlineError
from faultline.events import Event, emit
from faultline.metrics import meter
from faultline.postgres.driver import DriverError
from faultline.postgres.reconnecting import ReconnectingSession, is_transient, raise_if_cancelled
from faultline.schedules import Missed
from faultline.statements import firing, schedules
from faultline.statements.firing import DueSchedule, Fired

TICK_SECONDS = 1.0  # a new schedule is noticed this soon
_SOON_SECONDS = 0.8 * TICK_SECONDS  # `follow` waits for such a time itself
BATCH = 100
ON_TIME_SECONDS = 60.0  # an older time is missed, and the policy `skip` leaves it out
RETRY_SECONDS = 60.0  # after an error of one schedule
UNDECLARED_SECONDS = 60.0
_CLOSE_SECONDS = 10.0  # a session that was not used for this long is closed
_MICROSECOND = timedelta(microseconds=1)


class FiringDecision(NamedTuple):
    """Which of the due times fire, and when the schedule fires next."""

    planned: list[datetime]
    skipped: int
    newest_skipped: datetime | None
    next_fire_at: datetime


def decide(schedule: DueSchedule, now: datetime) -> FiringDecision:
    """Apply the policy for missed firings. Pure; bounded for any length of downtime."""
    timing, first, missed = schedule.timing, schedule.next_fire_at, Missed(schedule.missed)
    assert first is not None  # noqa: S101 - a schedule without a next time is planned first
    planned = timing.newest(first, now, schedule.missed_limit if missed is Missed.ALL else 1)
    # After a change of the time zone's rules the stored time may be none of the computed ones.
    planned = planned or [first]
    oldest, newest_skipped = planned[0], None
    skipped = timing.count(first, oldest)
    if missed is Missed.SKIP and (now - oldest).total_seconds() > ON_TIME_SECONDS:
        planned, skipped, newest_skipped = [], skipped + 1, oldest
    elif skipped:
        [newest_skipped] = timing.newest(first, oldest - _MICROSECOND, 1)
    return FiringDecision(planned, skipped, newest_skipped, timing.next_after(now))


class Scheduler:
    def __init__(self, url: str) -> None:
        self._session = ReconnectingSession(url, purpose="scheduler")
        self._failing: dict[str, float] = {}  # by name: when to try again, by time.monotonic()
        self._undeclared: set[str] = set()
        self._reported: set[str] = set()
        self._look_for_undeclared_at = time.monotonic() + UNDECLARED_SECONDS
        self._is_due = asyncio.Event()

    async def run(self) -> None:
        """Fire until cancelled. An error of the database is retried with backoff."""
        try:
            while True:
                await self._look_and_pause()
        finally:
            await self._session.close()

    async def follow(self) -> None:
        """The same, but look only after `expect`, and keep no idle session."""
        try:
            while True:
                try:
                    await asyncio.wait_for(self._is_due.wait(), _CLOSE_SECONDS)
                except TimeoutError:
                    await self._session.close()
                    continue
                self._is_due.clear()
                while await self._look_and_pause(is_followed=True):
                    pass
        finally:
            await self._session.close()

    def expect(self, next_fire_seconds: float | None) -> None:
        """The reconciler has read how soon a schedule is due; None: there are none.

        It reads that about once a second, so a later time is expected again.
        """
        if next_fire_seconds is None:
            return
        if time.monotonic() >= self._look_for_undeclared_at:
            next_fire_seconds = 0.0
        if next_fire_seconds <= 2 * TICK_SECONDS:
            loop = asyncio.get_running_loop()
            loop.call_later(max(0.0, next_fire_seconds), self._is_due.set)

    async def _look_and_pause(self, *, is_followed: bool = False) -> bool:
        """Look, and wait until the next look; returns whether that is to be soon.

        `is_followed` says that `expect` calls for the later looks.
        """
        pause = await self._look_safely()
        is_soon, is_after_error = pause < _SOON_SECONDS, pause > TICK_SECONDS
        if is_soon or is_after_error or not is_followed:
            await asyncio.sleep(pause)
        return is_soon

    async def _look_safely(self) -> float:
        """Look; returns how long to wait before the next look, also after an error."""
        try:
            return await self.look()
        except (FaultlineError, DriverError) as error:
            raise_if_cancelled(error)
            if is_transient(error):
                await self._session.drop()
                await self._session.pause(error)
                return 0.0
            message = " ".join(str(error).split())
            emit(Event.DEGRADED, reason=f"schedules are not fired: {message}")
            return RETRY_SECONDS

    async def look(self) -> float:
        """Fire what is due; returns how long to wait before the next look."""
        began = time.monotonic()
        waiting = [name for name, retry_at in self._failing.items() if began < retry_at]
        found = await self._session.run(firing.due_schedules(limit=BATCH, except_for=waiting))
        for schedule in found.due:
            await self._handle(schedule, found.now)
        await self._report_undeclared()
        if len(found.due) == BATCH:
            return 0.0
        pause = TICK_SECONDS * random.uniform(0.8, 1.0)  # noqa: S311 - spread
        if found.next_fire_at is not None:
            elapsed = time.monotonic() - began
            until_next = (found.next_fire_at - found.now).total_seconds() - elapsed
            pause = min(pause, max(0.001, until_next))
        return pause

    async def _handle(self, schedule: DueSchedule, now: datetime) -> None:
        """Fire or plan one schedule. Its own error must not stop the others."""
        try:
            if schedule.next_fire_at is None:
                next_fire_at = schedule.timing.next_after(schedule.decided_until)
                await self._session.run(firing.plan(schedule, next_fire_at))
            elif schedule.next_fire_at > now:
                await self._reanchor(schedule, now)
            else:
                await self._fire(schedule, now)
        except Exception as error:
            raise_if_cancelled(error)
            if is_transient(error):
                raise
            await self._report(schedule, error)
        else:
            self._failing.pop(schedule.name, None)

    async def _fire(self, schedule: DueSchedule, now: datetime) -> None:
        decision = decide(schedule, now)
        fired = await self._session.run(
            firing.fire(
                schedule,
                decision.planned,
                next_fire_at=decision.next_fire_at,
                skipped=decision.skipped,
                newest_skipped=decision.newest_skipped,
            )
        )
        if fired is not None:
            _tell(schedule, decision, fired)

    async def _reanchor(self, schedule: DueSchedule, now: datetime) -> None:
        """Count an interval from now: the clock was set back by more than one."""
        anchor = now.replace(microsecond=0)
        next_fire_at = anchor + timedelta(seconds=schedule.timing.every_seconds or 0)
        if await self._session.run(firing.plan(schedule, next_fire_at, reanchored=anchor)):
            emit(
                Event.SCHEDULE_REANCHORED,
                schedule=schedule.name,
                next_fire_at=next_fire_at.isoformat(),
            )

    async def _report(self, schedule: DueSchedule, error: Exception) -> None:
        self._failing[schedule.name] = time.monotonic() + RETRY_SECONDS
        message = " ".join(str(error).split())
        if await self._session.run(firing.report_error(schedule, message)):
            emit(Event.SCHEDULE_FAILED, schedule=schedule.name, error=message)

    async def _report_undeclared(self) -> None:
        """Report a schedule of code that no worker has declared for two looks."""
        if time.monotonic() < self._look_for_undeclared_at:
            return
        self._look_for_undeclared_at = time.monotonic() + UNDECLARED_SECONDS
        names = await self._session.run(schedules.undeclared())
        found = set(names)
        for name in sorted(found & self._undeclared - self._reported):
            emit(Event.SCHEDULE_UNDECLARED, schedule=name)
            self._reported.add(name)
        self._reported &= found
        self._undeclared = found


def _tell(schedule: DueSchedule, decision: FiringDecision, fired: Fired) -> None:
    meter.current.schedule_fired(
        fired=len(fired.times), skipped=decision.skipped, late_seconds=fired.late_seconds
    )
    for planned_at, job_id in zip(fired.times, fired.job_ids, strict=True):
        emit(
            Event.SCHEDULE_FIRED,
            schedule=schedule.name,
            planned_at=planned_at.isoformat(),
            job_id=str(job_id),
        )
    if decision.skipped:
        emit(
            Event.SCHEDULE_SKIPPED,
            schedule=schedule.name,
            times=decision.skipped,
            newest=None if decision.newest_skipped is None else decision.newest_skipped.isoformat(),
        )
