"""A fake external service, whose effects cannot be rolled back."""

from __future__ import annotations

import sys
import threading
from collections import Counter

from faultline.errors import FaultlineError
from faultline.testing.zombies.monitor import current_monitor
from faultline.testing.zombies.points import PointKind, calling_location


class TokenRefused(FaultlineError):
    """The service has already accepted a higher fencing token for this call."""

    code = "token_refused"


class Outside:
    """Records its calls. Each call is a point at which `zombies` injects faults.

    With a `key`, a repeated call has no second effect, like a service that accepts idempotency keys. With a
    `token`, a call is refused after one with a higher token and the same `what`, as your own store may do.
    """

    def __init__(self, name: str = "outside") -> None:
        self.name = name
        self.effects: list[str] = []
        self.calls = 0
        self._keys: set[str] = set()
        self._highest: Counter[str] = Counter()
        self._lock = threading.Lock()

    def call(self, what: str, *, key: str | None = None, token: int | None = None) -> bool:
        """Record the effect; return False if this key was used before."""
        monitor = current_monitor.get()
        if monitor is not None:
            where = calling_location(sys._getframe(1), monitor.handler)
            monitor.reach(PointKind.OUTSIDE, where, f"{self.name}: {what}")
        with self._lock:
            self.calls += 1
            if token is not None:
                if token < self._highest[what]:
                    raise TokenRefused(f"{what}: token {token} is lower than {self._highest[what]}")
                self._highest[what] = token
            if key is not None:
                if key in self._keys:
                    return False
                self._keys.add(key)
            self.effects.append(what)
            return True

    def reset(self) -> None:
        """Clear all records; call it in `arrange`."""
        with self._lock:
            self.effects.clear()
            self.calls = 0
            self._keys.clear()
            self._highest.clear()
