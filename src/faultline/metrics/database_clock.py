"""Estimates the database's clock from the monotonic clock and occasional readings.

A job's due time is in database time. Comparing it with the worker's clock would measure the clock difference.
"""

from __future__ import annotations

import time
from datetime import datetime

READ_SECONDS = 10.0
_FORGET_SECONDS = 60.0


class DatabaseClock:
    """Its error is at most half the round trip of the best reading in the last minute."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()  # a guess until the first reading
        self._round_trip = float("inf")
        self._read_at = float("-inf")  # when the current offset was read
        self._asked_at = float("-inf")

    def is_due(self) -> bool:
        return time.monotonic() >= self._asked_at + READ_SECONDS

    def learn(self, shown: datetime, *, sent_at: float) -> None:
        """Use a reading of the database's clock, requested at monotonic time `sent_at`."""
        now = self._asked_at = time.monotonic()
        round_trip = now - sent_at
        if round_trip <= self._round_trip or now - self._read_at > _FORGET_SECONDS:
            self._offset = shown.timestamp() - (sent_at + now) / 2
            self._round_trip, self._read_at = round_trip, now

    def at(self, moment: float) -> float:
        """Database time, in seconds since the epoch, at this value of time.monotonic()."""
        return moment + self._offset
