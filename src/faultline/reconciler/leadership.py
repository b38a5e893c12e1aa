"""Who leads, and how those who wait notice that it shows no life.

Leading is a session lock. A leader that falls silent, because its process is stopped or its host is lost,
keeps its session until the server ends it. But PostgreSQL's timers go by its wall clock: one that is set
back by an hour at that very moment ends it an hour later. So the leader has a pulse, which every account
can see: an advisory lock whose key it changes. Whoever waits, and sees by its own steady clock that the
pulse stands still, leads in its place until the pulse goes on or the session has ended.
"""

from __future__ import annotations

import random
import time

from faultline import protocol
from faultline.config import (
    LEADER_PULSE_SECONDS,
    LEADER_SILENCE_SECONDS,
    STAND_IN_SECONDS,
)
from faultline.link import Link
from faultline.protocol import LEADER_KEY, LOCK_CLASS, Statement
from faultline.reconciler.liveness import LeaderObserver, LeaderSighting

STAND_IN_KEY = -1
_SILENCE_LIMIT = f"{LEADER_SILENCE_SECONDS:g}s"
_WATCH_SECONDS = 1.0
# A leader that was seen to live is left alone for a while, the longer the more workers there are: all of them
# together look a few times a second.
_TRUST_SECONDS_PER_WORKER = 0.5


class Leadership:
    """One reconciler's part in it: it leads, or stands in for a silent leader, or waits."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._observer = LeaderObserver()
        self._beats = 0
        self._due_at = 0.0  # the next sign of life, or the next look for the leader's
        self.stands_in = False

    async def take(self) -> tuple[bool, int]:
        """Whether this reconciler leads from now on, and how many workers there are to compete with."""
        statement = protocol.try_to_lead(silence_limit=_SILENCE_LIMIT)
        leads, workers = await self._link.run(statement)
        self.stands_in = False
        if leads:
            self._beats = 0
        elif time.monotonic() >= self._due_at:
            await self._watch(workers)
        if leads or self.stands_in:
            self._due_at = 0.0
        return leads or self.stands_in, workers

    async def keep(self) -> bool:
        """Show life, when it is time to; False when another one leads again, or nobody does."""
        now = time.monotonic()
        if now < self._due_at:
            return True
        if self.stands_in:
            self._due_at = now + _WATCH_SECONDS
            return await self._still_seconds() is not None
        self._due_at = now + LEADER_PULSE_SECONDS
        self._beats += 1
        await self._link.run(beat(self._beats))
        return True

    async def _watch(self, workers: int) -> None:
        still_seconds = await self._still_seconds()
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


def beat(number: int) -> Statement[None]:
    """Hold the next key in place of the last one; the keys lie below those of everybody else."""
    key = STAND_IN_KEY - number
    return Statement(
        "SELECT pg_advisory_lock(%s, %s), CASE WHEN %s THEN pg_advisory_unlock(%s, %s) END",
        (LOCK_CLASS, key, number > 1, LOCK_CLASS, key + 1),
        lambda rows: None,
    )


def sight_leader() -> Statement[LeaderSighting | None]:
    """A virtual transaction without a number is that of a session that is doing nothing."""
    return Statement(
        "SELECT l.pid, min(l.objid::int8) FILTER (WHERE l.objid::int8 > 2147483647),"  # a negative key
        " bool_or(l.virtualtransaction NOT LIKE '%%/0')"
        " FROM pg_locks AS l WHERE l.locktype = 'advisory' AND l.granted AND l.classid = %s"
        " AND l.objsubid = 2 AND l.database = (SELECT d.oid FROM pg_database AS d"
        "  WHERE d.datname = current_database())"
        " GROUP BY l.pid HAVING bool_or(l.objid = %s)",
        (LOCK_CLASS, LEADER_KEY),
        lambda rows: LeaderSighting(*rows[0]) if rows else None,
    )
