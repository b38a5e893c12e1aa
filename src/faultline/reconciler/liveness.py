"""Decides which workers are dead and which leases or leaders stopped moving. Pure.

The reconciler feeds it with what it read, and with the time of its own steady clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from faultline.config import RECONNECT_SECONDS
from faultline.statements.leadership import LeaderSighting
from faultline.statements.survey import Survey
from faultline.statements.workers import LeaseSighting

_MANY_WORKERS = 3
_GRACE_SECONDS = 1.0


class DeadWorkers:
    """Decides which workers without a session are dead.

    A session that ends while the reconciler's own goes on is the end of a process: its jobs are requeued
    at once, however many workers are gone. If the reconciler's session was lost as well, a proxy or pooler
    restarted, and requeueing every job would double the load for nothing. Then, if most workers vanished
    together, they get RECONNECT_SECONDS to connect again.
    """

    def __init__(self) -> None:
        self.spared: frozenset[str] = frozenset()

    def dead_workers(
        self, survey: Survey, *, seconds_since_own_loss: float | None = None
    ) -> list[str]:
        """The vanished workers that count as dead.

        `seconds_since_own_loss` is None if the reconciler lost no session of its own.
        """
        vanished = frozenset(survey.vanished)
        if seconds_since_own_loss is None or seconds_since_own_loss > RECONNECT_SECONDS:
            self.spared = frozenset()
            return list(survey.vanished)
        fresh = vanished - self.spared
        if len(fresh) >= _MANY_WORKERS and 2 * len(vanished) > survey.registered:
            self.spared = vanished
        else:
            self.spared &= vanished
        return [worker for worker in survey.vanished if worker not in self.spared]


class LeaseObserver:
    """Notices leases that are not renewed, by the observer's own steady clock.

    The database's clock decides who may write. If it is set back by an hour, a dead worker's lease would
    last an hour longer. So a lease that was not renewed for longer than it lasts counts as expired.
    """

    def __init__(self) -> None:
        self._seen: dict[UUID, tuple[datetime, float]] = {}

    def lapsed(self, sightings: Iterable[LeaseSighting], now: float) -> list[UUID]:
        """Record the sightings of `now`; return the leases that count as expired."""
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


class LeaderObserver:
    """Measures by a steady clock how long the leader has sent no heartbeat."""

    def __init__(self) -> None:
        self._seen: LeaderSighting | None = None
        self._since = 0.0

    def unchanged_seconds(self, sighting: LeaderSighting | None, now: float) -> float | None:
        """How long the heartbeat key is unchanged; None if it changed or nothing leads.

        Infinite if an account without rights holds the lock: it does not lead. After a change the next
        sighting counts as the first one again.
        """
        if sighting is not None and sighting.is_foreign_account:
            return float("inf")
        is_first = self._seen is None
        if sighting is None or sighting.is_at_work or not (is_first or sighting == self._seen):
            self._seen = None
            return None
        if is_first:
            self._seen, self._since = sighting, now
        return now - self._since
