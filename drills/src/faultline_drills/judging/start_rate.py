"""Whether starts kept to a rate, in every window of a history. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_ROUNDING_JOBS = 1e-6


@dataclass(frozen=True, slots=True)
class StartRate:
    jobs_per_second: int
    burst: int

    def exceeded(self, starts: Sequence[float]) -> str | None:
        """The first window of these times, in order, that holds too many starts."""
        earliest = 0  # of the windows that end here, the one that is nearest to its bound
        for last, at in enumerate(starts):
            window, number = at - starts[earliest], last - earliest + 1
            if number > self.burst + window * self.jobs_per_second + _ROUNDING_JOBS:
                return f"{number} jobs started within {window:.3f} s"
            if number < window * self.jobs_per_second + 1:
                earliest = last
        return None
