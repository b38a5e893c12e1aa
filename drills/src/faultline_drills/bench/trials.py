"""The rates that were reached with each value of a setting. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# A setting that is within this share of the fastest is fast enough: a smaller one costs less elsewhere.
ENOUGH = 0.9


@dataclass
class Trials:
    """Jobs with a write per second, by the value that was tried."""

    concurrency: dict[int, float] = field(default_factory=dict)  # one process
    batch_size: dict[int, float] = field(default_factory=dict)  # one process
    processes: dict[int, float] = field(default_factory=dict)
    connections: int = 0  # of one process at the chosen concurrency
    max_connections: int = 0
    cores: int = 1  # of the machine of the workers

    def facts(self) -> dict[str, Any]:
        rates = {
            name: {str(value): round(rate, 1) for value, rate in tried.items()}
            for name, tried in (
                ("concurrency", self.concurrency),
                ("batch_size", self.batch_size),
                ("processes", self.processes),
            )
        }
        return {
            **rates,
            "connections": self.connections,
            "max_connections": self.max_connections,
            "cores": self.cores,
        }


def smallest_that_is_enough(tried: dict[int, float]) -> int:
    best = max(tried.values())
    return min(value for value, rate in tried.items() if rate >= ENOUGH * best)
