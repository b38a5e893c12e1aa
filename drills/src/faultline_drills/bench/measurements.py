"""Measured rates and times, each over several repeats. Pure."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import chain
from typing import Any

from faultline_drills.judging.measures import quantile


@dataclass(frozen=True)
class MeasuredRate:
    """Jobs per second, one value per repeat."""

    name: str
    title: str
    n: int  # jobs in all repeats together
    repeats: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.repeats)

    def facts(self) -> dict[str, Any]:
        return {
            "unit": "jobs/s",
            "n": self.n,
            "median": round(self.median, 1),
            "repeats": [round(value, 1) for value in self.repeats],
        }


@dataclass(frozen=True)
class Times:
    """Seconds, many values per repeat."""

    name: str
    title: str
    samples: tuple[tuple[float, ...], ...]

    @property
    def n(self) -> int:
        return sum(map(len, self.samples))

    @property
    def repeats(self) -> tuple[float, ...]:
        """The median of each repeat."""
        return tuple(statistics.median(repeat) for repeat in self.samples)

    @property
    def p50(self) -> float:
        return self._at(0.5)

    @property
    def p99(self) -> float:
        return self._at(0.99)

    @property
    def longest(self) -> float:
        return self._at(1.0)

    def _at(self, share: float) -> float:
        return quantile(list(chain.from_iterable(self.samples)), share)

    def facts(self) -> dict[str, Any]:
        return {
            "unit": "s",
            "n": self.n,
            "p50": round(self.p50, 6),
            "p99": round(self.p99, 6),
            "max": round(self.longest, 6),
            "repeats": [round(value, 6) for value in self.repeats],
        }


Measurement = MeasuredRate | Times
