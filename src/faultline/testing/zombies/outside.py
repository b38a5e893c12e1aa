"""A stand-in for a service outside of the database, where nothing can be rolled back."""

from __future__ import annotations

import sys
import threading
from collections import Counter

from faultline.errors import FaultlineError
from faultline.testing.zombies.points import PointKind, calling_place
from faultline.testing.zombies.watch import current


class TokenRefused(FaultlineError):
    """The service has seen a higher fencing token for this thing."""

    code = "token_refused"


class Outside:
    """Remembers what it was asked to do. Every call is a point of its own for `zombies`.

    With a `key`, a repeated call has no second effect, as services that take an idempotency key
    promise. With a `token`, a call that comes after one with a higher token for the same thing is
    refused, as a store of your own may do.
    """

    def __init__(self, name: str = "outside") -> None:
        self.name = name
        self.effects: list[str] = []
        self.calls = 0
        self._keys: set[str] = set()
        self._highest: Counter[str] = Counter()
        self._lock = threading.Lock()

    def call(self, what: str, *, key: str | None = None, token: int | None = None) -> bool:
        """Do it; False when it had been done before under this key."""
        watch = current.get()
        if watch is not None:
            where = calling_place(sys._getframe(1), watch.handler)
            watch.arrive(PointKind.OUTSIDE, where, f"{self.name}: {what}")
        with self._lock:
            self.calls += 1
            if token is not None:
                if token < self._highest[what]:
                    raise TokenRefused(f"{what}: token {token} is behind {self._highest[what]}")
                self._highest[what] = token
            if key is not None:
                if key in self._keys:
                    return False
                self._keys.add(key)
            self.effects.append(what)
            return True

    def reset(self) -> None:
        """Forget everything: for `arrange`."""
        with self._lock:
            self.effects.clear()
            self.calls = 0
            self._keys.clear()
            self._highest.clear()
