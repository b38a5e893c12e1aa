"""Medians and ranges of repeated measurements, and ratios of two of them. Pure."""

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
        """The range from lowest to highest, as a share of the median."""
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
    """Format a number with three significant digits and separated thousands."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def paired_ratio(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Measurement | None:
    """Return the ratio of ours to theirs per repeat; None without a common repeat.

    A machine that is slow for a while is slow for both values of a pair.
    """
    both = [ours[repeat] / theirs[repeat] for repeat in ours if theirs.get(repeat)]
    return measurement(both) if both else None
