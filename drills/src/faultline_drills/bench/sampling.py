"""Repeats a measurement until its share of the time budget is spent."""

from __future__ import annotations

import time
from collections.abc import Callable

REPEATS = 3
_MIN_SAMPLES = 5  # per repeat, whatever the budget
_MAX_SAMPLES = 20_000
_WARM_UP = 6  # executions: the driver prepares a statement at its sixth


def timed(act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


def sample_times(
    measure: Callable[[], float], *, budget_seconds: float
) -> tuple[tuple[float, ...], ...]:
    """The results of `measure`, by repeat."""
    for _ in range(_WARM_UP):
        measure()
    repeats = []
    for _ in range(REPEATS):
        deadline = time.monotonic() + budget_seconds / REPEATS
        samples: list[float] = []
        while len(samples) < _MIN_SAMPLES or (
            time.monotonic() < deadline and len(samples) < _MAX_SAMPLES
        ):
            samples.append(measure())
        repeats.append(tuple(samples))
    return tuple(repeats)


def sample_rate(
    act: Callable[[], object], *, size: int, budget_seconds: float
) -> tuple[int, tuple[float, ...]]:
    """The number of items, and the items per second by repeat.

    Each `act` does `size` items.
    """
    act()
    total, rates = 0, []
    for _ in range(REPEATS):
        began = time.monotonic()
        done = 0
        while not done or time.monotonic() - began < budget_seconds / REPEATS:
            act()
            done += size
        rates.append(done / (time.monotonic() - began))
        total += done
    return total, tuple(rates)
