"""Waits until a condition holds, with a bound."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_SECONDS = 0.02


def wait_until(
    condition: Callable[[], bool],
    *,
    timeout_seconds: float,
    poll_seconds: float = POLL_SECONDS,
    can_still_happen: Callable[[], bool] = lambda: True,
) -> bool:
    """Poll until `condition` holds; False at the timeout, or if it cannot happen."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if not can_still_happen() or time.monotonic() > deadline:
            return condition()
        time.sleep(poll_seconds)
    return True
