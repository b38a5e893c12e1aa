"""Slows down guesses at keys: a token bucket of wrong keys for each address, before the database is asked.

Clients behind one proxy share an address, so a flood of wrong keys could lock out the right ones among them.
A key that was right within the last hour is therefore looked up whatever others at its address do. Only a key
that this process has not seen yet has to wait, and no longer than the flood goes on.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

from faultline.api.rates import Rates
from faultline.api.refusals import Refusal

KNOWN_SECONDS = 3600.0
_MOST_KNOWN = 10_000


class Throttle:
    """Kept in this process alone, in bounded memory."""

    def __init__(
        self, per_second: float, burst: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rates = Rates(per_second, burst, clock=clock)
        self._clock = clock
        self._known: OrderedDict[bytes, float] = OrderedDict()  # by hash, until when

    def admit(self, address: str, presented_hash: bytes) -> None:
        """Before the key is looked up. Only wrong keys use tokens up: a fleet of right ones that comes at
        once, after a restart of this server, is not held up."""
        if self._is_known(presented_hash):
            return
        if wait_seconds := self._rates.wait_seconds(network_of(address)):
            raise Refusal(
                429,
                "too_many_wrong_keys",
                "too many wrong keys came from this address",
                "wait for as long as Retry-After says; check the key",
                {"Retry-After": str(wait_seconds)},
            )

    def accept(self, presented_hash: bytes) -> None:
        """The key was right."""
        self._known[presented_hash] = self._clock() + KNOWN_SECONDS
        self._known.move_to_end(presented_hash)
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)

    def reject(self, address: str, presented_hash: bytes) -> None:
        """The key was wrong; one that was right before has been revoked."""
        self._known.pop(presented_hash, None)
        self._rates.take(network_of(address))

    def _is_known(self, presented_hash: bytes) -> bool:
        return self._known.get(presented_hash, float("-inf")) > self._clock()


def network_of(address: str) -> str:
    """What one client has: an address of version 4, or a network of 64 bits of version 6."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False))
