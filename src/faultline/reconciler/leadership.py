"""Who leads, and how those who wait notice that it shows no life.

Leading is a session lock. A leader that falls silent, because its process is stopped or its host is lost,
keeps its session until the server ends it. But PostgreSQL's timers go by its wall clock: one that is set
back by an hour at that very moment ends it an hour later. So the leader has a pulse, which every account
can see: an advisory lock whose key it changes. Whoever waits, and sees by its own steady clock that the
pulse stands still, leads in its place until the pulse goes on or the session has ended.

Any account of the database can take that lock, without a single right. While one that may not use
Faultline's schema holds it, every reconciler acts, as behind a pooler, and says so.
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
from faultline.reconciler.liveness import LeaderObserver, LeaderSighting
from faultline.statements import workers
from faultline.statements.statement import Statement
from faultline.statements.workers import LEADER_KEY, LOCK_CLASS

STAND_IN_KEY = -1
_SILENCE_LIMIT = f"{LEADER_SILENCE_SECONDS:g}s"
_WATCH_SECONDS = 1.0
_LONGEST_JUMP = 1_000_000
# A leader that was seen to live is left alone for a while, the longer the more workers there are: all of them
# together look a few times a second.
_TRUST_SECONDS_PER_WORKER = 0.5


class Leadership:
    """One reconciler's part in it: it leads, or stands in for a silent leader, or waits."""

    def __init__(self, link: ReconnectingSession) -> None:
        self._link = link
        self._observer = LeaderObserver()
        self._beats = 0
        self._due_at = 0.0  # the next sign of life, or the next look for the leader's
        self.stands_in = False
        self.is_contested = False  # a stranger holds the lock, so that every reconciler acts

    async def take(self) -> tuple[bool, int]:
        """Whether this reconciler leads from now on, and how many workers there are to compete with."""
        statement = workers.try_to_lead(silence_limit=_SILENCE_LIMIT)
        leads, rivals = await self._link.run(statement)
        self.stands_in = self.is_contested = False
        if leads:
            self._beats = 0
        elif time.monotonic() >= self._due_at:
            await self._watch(rivals)
        if leads or self.stands_in:
            self._due_at = 0.0
        return leads or self.stands_in, rivals

    async def keep(self) -> bool:
        """Show life, when it is time to; False when another one leads again, or nobody does."""
        now = time.monotonic()
        if now < self._due_at:
            return True
        if self.stands_in:
            self._due_at = now + _WATCH_SECONDS
            return await self._still_seconds() is not None
        self._due_at = now + LEADER_PULSE_SECONDS
        number = self._beats + 1
        if await self._link.run(beat(number, after=self._beats)):
            self._beats = number
        else:  # another account holds that lock: jump to one that it does not
            jump = self._beats + random.randrange(1, _LONGEST_JUMP)  # noqa: S311 - no secret
            if await self._link.run(beat(jump, after=self._beats)):
                self._beats = jump
        return True

    async def _watch(self, workers: int) -> None:
        still_seconds = await self._still_seconds()
        if still_seconds == float("inf"):  # a stranger may hold the lock of stand-ins as well
            self.stands_in = self.is_contested = True
            return
        wait = max(_WATCH_SECONDS, workers * _TRUST_SECONDS_PER_WORKER)
        if still_seconds is not None and still_seconds > STAND_IN_SECONDS:
            self.stands_in = await self._link.run(stand_in())  # if nobody else does
        elif still_seconds is not None:
            wait = _WATCH_SECONDS
        self._due_at = time.monotonic() + wait * random.uniform(0.5, 1.0)  # noqa: S311 - spread

    async def _still_seconds(self) -> float | None:
        sighting = await self._link.run(sight_leader())
        return self._observer.still_seconds(sighting, time.monotonic())


def stand_in() -> Statement[bool]:
    """Whether this session leads in place of a silent leader; one does, however many wait."""
    return Statement(
        "SELECT CASE WHEN pg_try_advisory_lock(%s, %s)"
        " THEN set_config('idle_session_timeout', %s, false) IS NOT NULL ELSE false END",
        (LOCK_CLASS, STAND_IN_KEY, _SILENCE_LIMIT),
        lambda rows: bool(rows[0][0]),
    )


def beat(number: int, *, after: int) -> Statement[bool]:
    """Hold this beat's key in place of the last one's, if it can be had; 0 comes before the first.

    The keys lie below those of workers and of the leader.
    """
    key, last = STAND_IN_KEY - number, STAND_IN_KEY - after
    return Statement(
        "SELECT CASE WHEN NOT pg_try_advisory_lock(%s, %s) THEN false"
        " WHEN %s THEN pg_advisory_unlock(%s, %s) ELSE true END",
        (LOCK_CLASS, key, after > 0, LOCK_CLASS, last),
        lambda rows: bool(rows[0][0]),
    )


def sight_leader() -> Statement[LeaderSighting | None]:
    """A virtual transaction without a number is that of a session that is doing nothing."""
    return Statement(
        "SELECT l.pid, min(l.objid::int8) FILTER (WHERE l.objid::int8 > 2147483647),"  # a negative key
        " bool_or(l.virtualtransaction NOT LIKE '%%/0'),"
        " NOT coalesce(bool_or((SELECT has_schema_privilege(a.usesysid, 'faultline', 'USAGE')"
        "  FROM pg_stat_activity AS a WHERE a.pid = l.pid)), true)"
        " FROM pg_locks AS l WHERE l.locktype = 'advisory' AND l.granted AND l.classid = %s"
        " AND l.objsubid = 2 AND l.database = (SELECT d.oid FROM pg_database AS d"
        "  WHERE d.datname = current_database())"
        " GROUP BY l.pid HAVING bool_or(l.objid = %s)",
        (LOCK_CLASS, LEADER_KEY),
        lambda rows: LeaderSighting(*rows[0]) if rows else None,
    )
