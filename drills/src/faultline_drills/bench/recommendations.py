"""Recommends settings from the trials, each with its reason. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from faultline_drills.bench.trials import ENOUGH, Trials, smallest_that_is_enough

# Sessions that the server needs for others: producers, migrations, monitoring, a person.
_SHARE_OF_CONNECTIONS = 0.8


@dataclass(frozen=True)
class Recommendation:
    name: str
    setting: str  # as it is written in a command or in code
    value: int
    reason: str

    def facts(self) -> dict[str, Any]:
        return asdict(self)


def recommend(trials: Trials) -> list[Recommendation]:
    concurrency = smallest_that_is_enough(trials.concurrency)
    processes = smallest_that_is_enough(trials.processes)
    size = smallest_that_is_enough(trials.batch_size)
    connections = processes * trials.connections
    return [
        Recommendation(
            "concurrency",
            f"--concurrency {concurrency}",
            concurrency,
            f"One process reached {_tried(trials.concurrency)} jobs with a write per second; a handler that"
            " waits for something else needs more slots.",
        ),
        Recommendation(
            "processes", f"--processes {processes}", processes, _about_processes(trials, processes)
        ),
        Recommendation(
            "batch_size",
            f"max_size={size}",
            size,
            f"A batch task reached {_tried(trials.batch_size)} jobs with a write per second.",
        ),
        Recommendation(
            "connections",
            f"{connections} connections",
            connections,
            _about_connections(trials, processes, concurrency, connections),
        ),
    ]


def _about_processes(trials: Trials, processes: int) -> str:
    tried = f"{_tried(trials.processes)} jobs with a write per second"
    if len(trials.processes) == 1:
        return f"The workers have one core, so more processes were not tried; one reached {tried}."
    return f"On {trials.cores} cores, PostgreSQL's included if it runs here, they reached {tried}."


def _about_connections(trials: Trials, processes: int, concurrency: int, connections: int) -> str:
    each = f"A process had {trials.connections} open at concurrency {concurrency}"
    most = f"max_connections is {trials.max_connections}"
    if connections <= _SHARE_OF_CONNECTIONS * trials.max_connections:
        return f"{each}; {most}."
    return f"{each}; {most}, which is too close: raise it, or use a pooler."


def _tried(tried: dict[int, float]) -> str:
    """Return "900 with 5, 1,800 with 10 and 1,900 with 20"."""
    texts = [f"{rate:,.0f} with {value:,}" for value, rate in tried.items()]
    return f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else texts[0]


def how_chosen() -> str:
    return f"Each is the smallest value within {1 - ENOUGH:.0%} of the fastest."
