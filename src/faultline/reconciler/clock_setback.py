"""Makes jobs due again that a database clock set back has stranded.

A job that runs at once is due at the database's time of its enqueue. If that clock is set back by a day, or
a standby whose clock is a day behind is promoted, the job would wait for a day. The leading reconciler
therefore compares the database's clock with its own steady clock at every look, and with the newest
recorded times when it begins to lead. recovery.sql says which jobs are rescheduled, and to when.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from faultline.events import Event, emit
from faultline.postgres.reconnecting import ReconnectingSession
from faultline.statements import clock
from faultline.steady import steady_now

_TOLERANCE_SECONDS = 1.0  # a job may wait this much longer
# Transactions that enqueued before the clock was set back may commit after it.
_REPEAT_FOR_SECONDS = 60.0
_REPEAT_SECONDS = 2.0
_COST_SHARE = 20  # rescheduling takes at most 1/20 of the time
_MAX_PAGES = 10_000


class ClockWatch:
    """Compares the database's clock with a steady one. Pure."""

    def __init__(self) -> None:
        # By how many seconds at least the clock was ahead of the steady one when it was last read.
        self._ahead: float | None = None

    def set_back_seconds(self, shown: float, *, sent_at: float, answered_at: float) -> float:
        """By how much at least the clock was set back since it was last read, or 0.

        It showed `shown` at some moment between `sent_at` and `answered_at` of the steady clock.
        """
        before, self._ahead = self._ahead, shown - answered_at
        if before is None:
            return 0.0
        return max(0.0, before - (shown - sent_at))


class ClockSetback:
    def __init__(self, session: ReconnectingSession) -> None:
        self._session = session
        self._watch = ClockWatch()
        self._until = 0.0  # of the steady clock
        self._next_at = 0.0

    async def begin(self) -> None:
        """Check the clock when this reconciler begins to lead."""
        self._notice(await self._session.run(clock.clock_setback()))

    async def look(
        self,
        database_seconds: float,
        *,
        sent_at: float,
        answered_at: float,
        may_go_on: Callable[[], Awaitable[bool]],
    ) -> None:
        self._notice(
            self._watch.set_back_seconds(database_seconds, sent_at=sent_at, answered_at=answered_at)
        )
        began = steady_now()
        if not self._next_at <= began < self._until:
            return
        jobs = await self._reschedule(may_go_on)
        cost = steady_now() - began
        self._next_at = steady_now() + max(_REPEAT_SECONDS, _COST_SHARE * cost)
        if jobs:
            emit(Event.JOBS_RESCHEDULED, jobs=jobs)

    def _notice(self, seconds: float) -> None:
        if seconds <= _TOLERANCE_SECONDS:
            return
        self._until = steady_now() + _REPEAT_FOR_SECONDS
        self._next_at = 0.0
        emit(
            Event.DEGRADED,
            reason=f"the database's clock was set back by {seconds:.0f} s: jobs that were to run at"
            " once, or to be retried, are made due again",
        )

    async def _reschedule(self, may_go_on: Callable[[], Awaitable[bool]]) -> int:
        jobs, after = 0, None
        for _ in range(_MAX_PAGES):
            page = await self._session.run(clock.reschedule_stranded(after))
            jobs, after = jobs + page.jobs, page.next
            if after is None or not await may_go_on():
                break
        return jobs
