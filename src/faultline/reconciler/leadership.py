"""Leader election for reconcilers: an advisory lock and the leader's heartbeat.

The leader holds an advisory lock. PostgreSQL releases it when the session of a dead leader ends. But the
server's timers use the wall clock, so a clock that is set back delays that end. The leader therefore has a
heartbeat: it changes the key of a second advisory lock every LEADER_HEARTBEAT_SECONDS. A reconciler that
sees this key unchanged for ACTING_LEADER_AFTER_SECONDS of its own steady clock acts as leader, until the
key changes again or the leader's session ends.

Any account of the database can take these locks. While an account without rights on the schema holds the
leader's lock, every reconciler acts, as behind a pooler, and logs it. Several reconcilers at once are
safe, because every function that changes a job locks its row.
"""

from __future__ import annotations

import random
import time

from faultline.config import (
    ACTING_LEADER_AFTER_SECONDS,
    LEADER_HEARTBEAT_SECONDS,
    LEADER_SILENCE_SECONDS,
)
from faultline.postgres.reconnecting import ReconnectingSession
from faultline.reconciler.liveness import LeaderObserver
from faultline.statements.leadership import (
    LeaderHeartbeat,
    beat,
    leader_sighting,
    try_to_act_as_leader,
    try_to_lead,
)

_SILENCE_LIMIT = f"{LEADER_SILENCE_SECONDS:g}s"
_WATCH_SECONDS = 1.0
# A statement that is sent this long before the next heartbeat is due carries it.
_EARLY_SECONDS = 0.1
_MAX_KEY_STEP = 1_000_000
# How long a reconciler waits between two checks of the leader, for each registered worker: all reconcilers
# together then check about twice a second.
_WAIT_SECONDS_PER_WORKER = 1.0


class Leadership:
    """The state of one reconciler: leader, acting leader or follower."""

    def __init__(self, session: ReconnectingSession) -> None:
        self._session = session
        self._observer = LeaderObserver()
        self._beats = 0
        self._due_at = 0.0  # the next own heartbeat, or the next check of the leader's
        self.is_acting_leader = False
        self.is_contested = False  # an account without rights holds the lock: every reconciler acts

    async def take(self) -> tuple[bool, int]:
        """Try to lead. Returns whether it does, and how many workers are registered."""
        statement = try_to_lead(silence_limit=_SILENCE_LIMIT)
        leads, worker_count = await self._session.run(statement)
        self.is_acting_leader = self.is_contested = False
        if leads:
            self._beats = 0
        elif time.monotonic() >= self._due_at:
            await self._watch_leader(worker_count)
        if leads or self.is_acting_leader:
            self._due_at = 0.0
        return leads or self.is_acting_leader, worker_count

    def due_heartbeat(self) -> LeaderHeartbeat | None:
        """The heartbeat that the next statement may send."""
        if self.is_acting_leader or time.monotonic() < self._due_at - _EARLY_SECONDS:
            return None
        return LeaderHeartbeat(self._beats + 1, self._beats)

    def has_sent(self, heartbeat: LeaderHeartbeat) -> None:
        self._beats = heartbeat.number
        self._due_at = time.monotonic() + LEADER_HEARTBEAT_SECONDS

    async def keep(self, *, may_wait: bool = False) -> bool:
        """Send the heartbeat when due. False when an acting leader must stop.

        `may_wait` says that the next statement will send it soon.
        """
        now = time.monotonic()
        if now < self._due_at or (may_wait and not self.is_acting_leader):
            return True
        if self.is_acting_leader:
            self._due_at = now + _WATCH_SECONDS
            return await self._unchanged_seconds() is not None
        self._due_at = now + LEADER_HEARTBEAT_SECONDS
        number = self._beats + 1
        if await self._session.run(beat(number, after=self._beats)):
            self._beats = number
        else:  # another account holds that lock: try a key far away
            step = self._beats + random.randrange(1, _MAX_KEY_STEP)  # noqa: S311 - no secret
            if await self._session.run(beat(step, after=self._beats)):
                self._beats = step
        return True

    async def _watch_leader(self, workers: int) -> None:
        unchanged_seconds = await self._unchanged_seconds()
        if unchanged_seconds == float("inf"):  # that account may hold the acting leader's lock too
            self.is_acting_leader = self.is_contested = True
            return
        wait = max(_WATCH_SECONDS, workers * _WAIT_SECONDS_PER_WORKER)
        if unchanged_seconds is not None and unchanged_seconds > ACTING_LEADER_AFTER_SECONDS:
            # False if another reconciler acts as leader.
            statement = try_to_act_as_leader(silence_limit=_SILENCE_LIMIT)
            self.is_acting_leader = await self._session.run(statement)
        elif unchanged_seconds is not None:
            wait = _WATCH_SECONDS
        self._due_at = time.monotonic() + wait * random.uniform(0.5, 1.0)  # noqa: S311 - spread

    async def _unchanged_seconds(self) -> float | None:
        sighting = await self._session.run(leader_sighting())
        return self._observer.unchanged_seconds(sighting, time.monotonic())
