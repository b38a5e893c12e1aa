"""Does something again and again until its share of the budget is spent, and keeps the times."""

from __future__ import annotations

import time
from collections.abc import Callable

REPEATS = 3
_FEWEST = 5  # of each repeat, whatever the budget: a median of fewer says nothing
_MOST = 20_000
_WARM_UP = 6  # the driver prepares a statement at its sixth execution


def timed(act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


def sample_times(
    measure: Callable[[], float], *, budget_seconds: float
) -> tuple[tuple[float, ...], ...]:
    """What `measure` returned, by repeat."""
    for _ in range(_WARM_UP):
        measure()
    repeats = []
    for _ in range(REPEATS):
        deadline = time.monotonic() + budget_seconds / REPEATS
        samples: list[float] = []
        while len(samples) < _FEWEST or (time.monotonic() < deadline and len(samples) < _MOST):
            samples.append(measure())
        repeats.append(tuple(samples))
    return tuple(repeats)


def sample_rate(
    act: Callable[[], object], *, size: int, budget_seconds: float
) -> tuple[int, tuple[float, ...]]:
    """How many things were done in all, `size` by each `act`, and how many a second by repeat."""
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
