"""How fast a worker gets through its jobs, so that a claim can be as large as what starts soon.

Short jobs are claimed ahead of the slots, many in one round trip. Long ones are not: a job must not
wait in this worker's hands while another has nothing to do.
"""

from __future__ import annotations

_HORIZON_SECONDS = 0.05
_SAMPLE_SECONDS = 0.002


class Pace:
    def __init__(self, *, most_ahead: int) -> None:
        self._most_ahead = most_ahead
        self._ended = 0
        self._since = 0.0
        self._per_second = 0.0

    def job_ended(self) -> None:
        self._ended += 1

    def jobs_ahead(self, now: float) -> int:
        """How many jobs beyond the free slots will have been started in a moment."""
        elapsed = now - self._since
        if elapsed >= _SAMPLE_SECONDS:
            newest = self._ended / elapsed
            # Slowing down is believed at once, speeding up by half: holding too much is worse.
            self._per_second = min(newest, (self._per_second + newest) / 2)
            self._ended, self._since = 0, now
        return min(self._most_ahead, int(self._per_second * _HORIZON_SECONDS))
