"""A monotonic clock that also counts the time in which the machine is suspended."""

from __future__ import annotations

import time

# CLOCK_BOOTTIME counts suspended time, as the database's clock does.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_now() -> float:
    """Seconds; all processes of one machine share the clock."""
    return time.clock_gettime(_CLOCK)
