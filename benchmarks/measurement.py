"""Several measurements of one thing, and one thing measured against another. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Measurement:
    n: int
    median: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """From the lowest to the highest, as a share of the median."""
        return (self.high - self.low) / self.median if self.median else 0.0

    def facts(self) -> dict[str, Any]:
        return {
            "n": self.n,
            "median": self.median,
            "low": self.low,
            "high": self.high,
            "spread": self.spread,
        }


def measurement(values: Sequence[float]) -> Measurement:
    return Measurement(len(values), statistics.median(values), min(values), max(values))


def number(value: float) -> str:
    """For readers: three digits that count, thousands separated."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def paired_ratio(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Measurement | None:
    """Ours over theirs, by repeat: a machine that is slower for a while is slower for both of a pair.

    None when there is no repeat in which both were measured.
    """
    both = [ours[repeat] / theirs[repeat] for repeat in ours if theirs.get(repeat)]
    return measurement(both) if both else None
