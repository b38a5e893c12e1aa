"""Leader election for reconcilers: a session lock, and a pulse of the leader.

The leader holds an advisory lock. PostgreSQL releases it when the session of a dead leader ends, but its
timers follow the wall clock: a clock that is set back at that moment delays the end by as much. The
leader therefore changes the key of a second advisory lock every few seconds. A waiting reconciler that
sees this key unchanged for STAND_IN_SECONDS of its own steady clock leads in its place, until the key
changes again or the session ends.

Any account of the database can take these locks. While an account without rights on the schema holds the
leader's lock, every reconciler acts, as behind a pooler, and logs it. Several reconcilers at once are
safe, because every verb locks the job's row.
"""

from __future__ import annotations

import random
import time

from faultline.config import (
    LEADER_PULSE_SECONDS,
    LEADER_SILENCE_SECONDS,
    STAND_IN_SECONDS,
)
from faultline.postgres.reconnecting import ReconnectingSession
from faultline.reconciler.liveness import LeaderObserver
from faultline.statements.leadership import beat, leader_sighting, stand_in, try_to_lead

_SILENCE_LIMIT = f"{LEADER_SILENCE_SECONDS:g}s"
_WATCH_SECONDS = 1.0
_MAX_KEY_STEP = 1_000_000
# After a beat was seen, a reconciler waits before it looks again. The wait grows with the number of workers,
# so that all of them together look a few times a second.
_WAIT_SECONDS_PER_WORKER = 0.5


class Leadership:
    """The state of one reconciler: it leads, replaces a silent leader, or waits."""

    def __init__(self, session: ReconnectingSession) -> None:
        self._session = session
        self._observer = LeaderObserver()
        self._beats = 0
        self._due_at = 0.0  # the next beat, or the next look at the leader's pulse
        self.stands_in = False
        self.is_contested = False  # an account without rights holds the lock: every reconciler acts

    async def take(self) -> tuple[bool, int]:
        """Try to lead. Returns whether it does, and how many workers are registered."""
        statement = try_to_lead(silence_limit=_SILENCE_LIMIT)
        leads, worker_count = await self._session.run(statement)
        self.stands_in = self.is_contested = False
        if leads:
            self._beats = 0
        elif time.monotonic() >= self._due_at:
            await self._watch_leader(worker_count)
        if leads or self.stands_in:
            self._due_at = 0.0
        return leads or self.stands_in, worker_count

    async def keep(self) -> bool:
        """Change the pulse when due. False when a stand-in must stop leading."""
        now = time.monotonic()
        if now < self._due_at:
            return True
        if self.stands_in:
            self._due_at = now + _WATCH_SECONDS
            return await self._still_seconds() is not None
        self._due_at = now + LEADER_PULSE_SECONDS
        number = self._beats + 1
        if await self._session.run(beat(number, after=self._beats)):
            self._beats = number
        else:  # another account holds that lock: try a key far away
            step = self._beats + random.randrange(1, _MAX_KEY_STEP)  # noqa: S311 - no secret
            if await self._session.run(beat(step, after=self._beats)):
                self._beats = step
        return True

    async def _watch_leader(self, workers: int) -> None:
        still_seconds = await self._still_seconds()
        if still_seconds == float("inf"):  # that account may hold the lock of stand-ins as well
            self.stands_in = self.is_contested = True
            return
        wait = max(_WATCH_SECONDS, workers * _WAIT_SECONDS_PER_WORKER)
        if still_seconds is not None and still_seconds > STAND_IN_SECONDS:
            self.stands_in = await self._session.run(
                stand_in(silence_limit=_SILENCE_LIMIT)
            )  # unless another reconciler does
        elif still_seconds is not None:
            wait = _WATCH_SECONDS
        self._due_at = time.monotonic() + wait * random.uniform(0.5, 1.0)  # noqa: S311 - spread

    async def _still_seconds(self) -> float | None:
        sighting = await self._session.run(leader_sighting())
        return self._observer.still_seconds(sighting, time.monotonic())
