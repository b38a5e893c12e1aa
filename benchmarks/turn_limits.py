"""How long the parts of a turn may last. A part that reaches its limit is stopped."""

from __future__ import annotations

from dataclasses import dataclass

# A new database, the peer's tables, its processes: on two cores without other load.
SETUP_SECONDS = 2.5


@dataclass(frozen=True)
class TurnLimits:
    """Seconds for enqueueing before a measurement, and for the measurement itself."""

    fill_seconds: float
    measured_seconds: float
    timeout_seconds: float  # for the whole turn: a peer that stalls is reported as such


# Of the default run, of --short, and of --all and chosen workloads.
LIMITED = TurnLimits(fill_seconds=2.0, measured_seconds=3.0, timeout_seconds=60.0)
SHORT = TurnLimits(fill_seconds=1.0, measured_seconds=1.2, timeout_seconds=30.0)
GENEROUS = TurnLimits(fill_seconds=10.0, measured_seconds=10.0, timeout_seconds=180.0)
