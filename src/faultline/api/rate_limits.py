"""Token buckets for requests of each key and wrong keys of each address.

They are kept in this process, in bounded memory: two processes allow twice the rate.
"""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

from faultline.api.api_errors import ApiError

MAX_BUCKETS = 10_000
KNOWN_SECONDS = 3600.0
_MAX_KNOWN = 10_000


class RateLimiter:
    """One token bucket for each name."""

    def __init__(
        self,
        per_second: float,
        burst: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        max_buckets: int = MAX_BUCKETS,
    ) -> None:
        self._per_second, self._burst = per_second, float(burst)
        self._clock = clock
        self._max_buckets = max_buckets
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, name: Hashable) -> int:
        """Take a token. 0 if there was one, else the whole seconds until there is one."""
        if not self._per_second:
            return 0
        now = self._clock()
        tokens = self._tokens(name, now)
        granted = tokens >= 1
        self._buckets.pop(name, None)
        self._buckets[name] = (tokens - 1 if granted else tokens, now)
        if len(self._buckets) > self._max_buckets:  # the one unused longest is usually full again
            self._buckets.popitem(last=False)
        return 0 if granted else self._wait_for(tokens)

    def wait_seconds(self, name: Hashable) -> int:
        """What `take` would return, without taking a token."""
        if not self._per_second:
            return 0
        tokens = self._tokens(name, self._clock())
        return 0 if tokens >= 1 else self._wait_for(tokens)

    def _tokens(self, name: Hashable, now: float) -> float:
        tokens, since = self._buckets.get(name, (self._burst, now))
        return min(self._burst, tokens + (now - since) * self._per_second)

    def _wait_for(self, tokens: float) -> int:
        return max(1, math.ceil((1 - tokens) / self._per_second))


class WrongKeyLimiter:
    """Limits the wrong keys of each address, before the database is asked.

    Clients behind one proxy share an address, so a flood of wrong keys could lock out valid ones. A key that
    was valid within the last hour is therefore always looked up. Only a key that this process has not seen
    has to wait until the flood ends.
    """

    def __init__(
        self, per_second: float, burst: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limiter = RateLimiter(per_second, burst, clock=clock)
        self._clock = clock
        self._known_until: OrderedDict[bytes, float] = OrderedDict()  # by the key's hash

    def admit(self, address: str, presented_hash: bytes) -> None:
        """Called before the key is looked up.

        Only wrong keys take tokens: many valid clients at once, after a restart of this server, are not
        delayed.
        """
        if self._is_known(presented_hash):
            return
        if wait_seconds := self._limiter.wait_seconds(network_of(address)):
            raise ApiError(
                429,
                "too_many_wrong_keys",
                "too many wrong keys came from this address",
                "wait as long as Retry-After says; check the key",
                {"Retry-After": str(wait_seconds)},
            )

    def accept(self, presented_hash: bytes) -> None:
        """The key was valid."""
        self._known_until[presented_hash] = self._clock() + KNOWN_SECONDS
        self._known_until.move_to_end(presented_hash)
        if len(self._known_until) > _MAX_KNOWN:
            self._known_until.popitem(last=False)

    def reject(self, address: str, presented_hash: bytes) -> None:
        """The key was wrong, or has been revoked."""
        self._known_until.pop(presented_hash, None)
        self._limiter.take(network_of(address))

    def _is_known(self, presented_hash: bytes) -> bool:
        return self._known_until.get(presented_hash, float("-inf")) > self._clock()


def network_of(address: str) -> str:
    """What one client usually has: an IPv4 address, or a /64 network of IPv6."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False))
