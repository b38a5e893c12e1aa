"""Who is dead, and which leases have stopped moving. Pure: fed with what was seen, and when."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from faultline.protocol import LeaseSighting, Survey

_CROWD = 3
_GRACE_SECONDS = 1.0


class DeathJudge:
    """Tells the dead from those that are merely out of sight.

    When most of a crowd vanishes at once, it is rather the way to them that is cut (a pooler or a
    proxy restarted, say): giving all their jobs away would double the load for nothing. They keep
    them until the leases run out, or they are seen again.
    """

    def __init__(self) -> None:
        self.spared: frozenset[str] = frozenset()

    def dead_workers(self, survey: Survey) -> list[str]:
        """The vanished workers that may be taken for dead."""
        vanished = frozenset(survey.vanished)
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
