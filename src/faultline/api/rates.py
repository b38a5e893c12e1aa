"""Token buckets: how often each key may ask, and how many wrong keys an address may try."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

MOST_BUCKETS = 10_000


class Rates:
    """Kept in this process alone: two processes give a key twice the rate."""

    def __init__(
        self,
        per_second: float,
        burst: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        most_buckets: int = MOST_BUCKETS,
    ) -> None:
        self._per_second, self._burst = per_second, float(burst)
        self._clock = clock
        self._most = most_buckets
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, whose: Hashable) -> int:
        """0 when there was a token; else in how many whole seconds there will be one."""
        if not self._per_second:
            return 0
        now = self._clock()
        tokens, since = self._buckets.pop(whose, (self._burst, now))
        tokens = min(self._burst, tokens + (now - since) * self._per_second)
        granted = tokens >= 1
        self._buckets[whose] = (tokens - 1 if granted else tokens, now)
        if len(self._buckets) > self._most:  # the longest unused: as a rule it is full again
            self._buckets.popitem(last=False)
        return 0 if granted else max(1, math.ceil((1 - tokens) / self._per_second))

    def give_back(self, whose: Hashable) -> None:
        """Undo one `take` that was granted."""
        if whose in self._buckets:
            tokens, since = self._buckets[whose]
            self._buckets[whose] = (min(self._burst, tokens + 1), since)
