"""What the database's clock shows, told from a steady clock here and a look at the real one now and then.

A job's due time is the database's; taking it from the worker's own clock would measure how wrong that is.
"""

from __future__ import annotations

import time
from datetime import datetime

LOOK_SECONDS = 10.0
_FORGET_SECONDS = 60.0


class DatabaseClock:
    """Wrong by half the round trip of its best look in the last minute, at most."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()  # until the first look, a few milliseconds
        self._round_trip = float("inf")
        self._looked_at = float("-inf")  # when the look that counts was made
        self._asked_at = float("-inf")

    def is_due(self) -> bool:
        return time.monotonic() >= self._asked_at + LOOK_SECONDS

    def learn(self, shown: datetime, *, sent_at: float) -> None:
        """The database showed this; it was asked at `sent_at`, by time.monotonic()."""
        now = self._asked_at = time.monotonic()
        round_trip = now - sent_at
        if round_trip <= self._round_trip or now - self._looked_at > _FORGET_SECONDS:
            self._offset = shown.timestamp() - (sent_at + now) / 2
            self._round_trip, self._looked_at = round_trip, now

    def at(self, moment: float) -> float:
        """Seconds since the epoch by the database, at this moment of time.monotonic()."""
        return moment + self._offset
