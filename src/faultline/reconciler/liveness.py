"""Who is dead, and which leases, or leaders, have stopped moving. Pure: fed with what was seen, and when."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from faultline.config import RECONNECT_SECONDS
from faultline.statements.workers import LeaseSighting, Survey

_CROWD = 3
_GRACE_SECONDS = 1.0


class DeathJudge:
    """Decides which workers without a session are dead.

    A session that ends while the reconciler's own goes on is the end of a process: its jobs are requeued
    at once, however many workers are gone. If the reconciler's session was lost as well, the way to the
    server was cut for all (a restarted proxy or pooler), and requeueing every job would double the load
    for nothing. Then most of a crowd is spared until they have had time to connect again.
    """

    def __init__(self) -> None:
        self.spared: frozenset[str] = frozenset()

    def dead_workers(
        self, survey: Survey, *, seconds_since_own_loss: float | None = None
    ) -> list[str]:
        """The vanished workers that count as dead; None if the reconciler lost no session of its own."""
        vanished = frozenset(survey.vanished)
        if seconds_since_own_loss is None or seconds_since_own_loss > RECONNECT_SECONDS:
            self.spared = frozenset()
            return list(survey.vanished)
        fresh = vanished - self.spared
        if len(fresh) >= _CROWD and 2 * len(vanished) > survey.registered:
            self.spared = vanished
        else:
            self.spared &= vanished
        return [worker for worker in survey.vanished if worker not in self.spared]


class LeaseObserver:
    """Notices leases that are not renewed, by the observer's own steady clock.

    The database's clock decides who may write. But if it is set back by an hour, leases linger for
    an hour after their worker is gone: a lease that has not moved for longer than it lasts is over,
    whatever that clock says.
    """

    def __init__(self) -> None:
        self._seen: dict[UUID, tuple[datetime, float]] = {}

    def lapsed(self, sightings: Iterable[LeaseSighting], now: float) -> list[UUID]:
        """Remember these sightings, made at `now`; return the leases that count as expired."""
        seen: dict[UUID, tuple[datetime, float]] = {}
        lapsed = []
        for sighting in sightings:
            expires_at, since = self._seen.get(sighting.lease_id, (sighting.expires_at, now))
            if expires_at != sighting.expires_at:
                since = now
            seen[sighting.lease_id] = (sighting.expires_at, since)
            if now - since > sighting.lease_seconds + _GRACE_SECONDS:
                lapsed.append(sighting.lease_id)
        self._seen = seen
        return lapsed


class LeaderSighting(NamedTuple):
    """The session that leads, as anybody can see it."""

    pid: int
    pulse: int | None  # None before the first beat
    is_at_work: bool  # in the middle of a statement, however long that takes
    is_stranger: bool = (
        False  # its account may not use Faultline: any account can take advisory locks
    )


class LeaderObserver:
    """Notices a leader that shows no life, by the observer's own steady clock."""

    def __init__(self) -> None:
        self._seen: LeaderSighting | None = None
        self._since = 0.0

    def still_seconds(self, sighting: LeaderSighting | None, now: float) -> float | None:
        """For how long it has stood still, as far as was seen; None: it has moved, or is gone.

        A stranger that holds the lock has never led.

        What moved may stand still from then on: the next sighting is the first one again.
        """
        if sighting is not None and sighting.is_stranger:
            return float("inf")
        is_first = self._seen is None
        if sighting is None or sighting.is_at_work or not (is_first or sighting == self._seen):
            self._seen = None
            return None
        if is_first:
            self._seen, self._since = sighting, now
        return now - self._since
