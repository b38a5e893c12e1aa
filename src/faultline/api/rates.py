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
        tokens = self._tokens(whose, now)
        granted = tokens >= 1
        self._buckets.pop(whose, None)
        self._buckets[whose] = (tokens - 1 if granted else tokens, now)
        if len(self._buckets) > self._most:  # the longest unused: as a rule it is full again
            self._buckets.popitem(last=False)
        return 0 if granted else self._wait_for(tokens)

    def wait_seconds(self, whose: Hashable) -> int:
        """What `take` would answer; takes nothing."""
        if not self._per_second:
            return 0
        tokens = self._tokens(whose, self._clock())
        return 0 if tokens >= 1 else self._wait_for(tokens)

    def _tokens(self, whose: Hashable, now: float) -> float:
        tokens, since = self._buckets.get(whose, (self._burst, now))
        return min(self._burst, tokens + (now - since) * self._per_second)

    def _wait_for(self, tokens: float) -> int:
        return max(1, math.ceil((1 - tokens) / self._per_second))
