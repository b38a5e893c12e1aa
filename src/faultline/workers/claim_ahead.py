"""How many jobs a worker claims beyond its free slots.

Short jobs are claimed ahead of the slots, many in one round trip. Long ones are not: a job must not wait
in this worker's buffer while another worker is idle.
"""

from __future__ import annotations

_HORIZON_SECONDS = 0.05
_SAMPLE_SECONDS = 0.002


class ClaimAhead:
    """Estimates how many attempts will start soon, from the rate of ended ones."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._ended = 0
        self._since = 0.0
        self._per_second = 0.0

    def jobs(self, now: float, *, ended: int) -> int:
        """`ended` counts the attempts that have ended since the worker began."""
        elapsed = now - self._since
        if elapsed >= _SAMPLE_SECONDS:
            newest = (ended - self._ended) / elapsed
            # A lower rate counts at once, a higher one by half: too many buffered jobs are worse.
            self._per_second = min(newest, (self._per_second + newest) / 2)
            self._ended, self._since = ended, now
        return min(self._limit, int(self._per_second * _HORIZON_SECONDS))
