"""Wakes idle workers for jobs that become due without a notification.

A job for later, or one whose retry waits, sends no notification when its time comes. The leading reconciler
reads when that is, so that idle workers poll seldom. Losing this costs a poll interval.
"""

from __future__ import annotations

from faultline.config import LIVENESS_SECONDS
from faultline.statements.survey import Wake

_LONGEST_PAUSE_SECONDS = 1.0
_COST_SHARE = 20  # it takes at most 1/20 of the time


class DueJobs:
    """Decides when to look for due jobs. Pure."""

    def __init__(self) -> None:
        self._look_at = 0.0
        self._due_at: float | None = None
        self._again_seconds = LIVENESS_SECONDS

    def is_time(self, now: float) -> bool:
        return now >= self._look_at

    def note(self, wake: Wake, now: float) -> None:
        """Record an answer.

        Workers that cannot claim what is due are notified less and less often.
        """
        pause = LIVENESS_SECONDS
        if wake.notified:
            pause = self._again_seconds
            self._again_seconds = min(2 * self._again_seconds, _LONGEST_PAUSE_SECONDS)
        else:
            self._again_seconds = LIVENESS_SECONDS
        self._look_at = now + max(pause, _COST_SHARE * wake.took_seconds)
        if wake.notified:
            self._due_at = self._look_at
        elif wake.next_due_seconds is not None:
            self._due_at = now + wake.next_due_seconds
        else:
            self._due_at = None

    def seconds_until_due(self, now: float) -> float | None:
        """How soon to look again because of a job; None if no job waits."""
        return None if self._due_at is None else max(self._due_at, self._look_at) - now
