"""The clock that nobody can set, and that no suspended machine stops."""

from __future__ import annotations

import time

# CLOCK_BOOTTIME goes on while the machine is suspended, as the database's clock does.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_now() -> float:
    """In seconds, the same for all processes of one machine."""
    return time.clock_gettime(_CLOCK)
