"""The plan of a run: who runs what how often, and how long it takes at most. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.comparison import Turn, turns
from benchmarks.peer import Peer
from benchmarks.section import SECTIONS
from benchmarks.selection import EVERYTHING, Selection
from benchmarks.turn_limits import TurnLimits
from benchmarks.workloads import WORKLOADS, Workload

REPEATS = 5
MINUTES, SHORT_MINUTES = 40.0, 4.0
SHORT_SCALE = 0.3
# Starting and stopping the servers, installing what is there already, the report and its plots.
_AROUND_SECONDS = 15.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The options of a run."""

    command: str
    peers: Sequence[Peer]
    workloads: Sequence[Workload]
    sections: Sequence[str]
    repeats: int
    scale: float
    seed: int
    short: bool
    limits: TurnLimits
    selection: Selection = EVERYTHING
    minutes: float | None = None  # turns that would end later are left out
    everything: bool = False
    database_url: str | None
    output: Path
    resume: bool = False

    def settings(self) -> dict[str, object]:
        """Return the settings that samples depend on; --resume requires equal ones."""
        return {
            "seed": self.seed,
            "scale": self.scale,
            "repeats": self.repeats,
            "measured_seconds": self.limits.measured_seconds,
            "peers": [peer.name for peer in self.peers],
            "workloads": [workload.name for workload in self.workloads],
        }

    def turns(self, peers: Sequence[Peer]) -> list[Turn]:
        """Return the turns of these peers, which could be installed."""
        return turns(peers, self.workloads, self.repeats, self.seed, self.selection)

    def turns_seconds(self, planned: Sequence[Turn]) -> float:
        return sum(turn.workload.budget_seconds(self.limits) for turn in planned)

    def sections_seconds(self) -> float:
        return sum(self.section_seconds(name) for name in self.sections)

    def section_seconds(self, name: str) -> float:
        section = SECTIONS[name]
        if self.everything:
            return section.all_seconds or section.seconds
        return (section.short_seconds if self.short else None) or section.seconds

    def budget_seconds(self, planned: Sequence[Turn]) -> float:
        """Return how long the whole run lasts, without the first installation of peers."""
        return self.turns_seconds(planned) + self.sections_seconds() + _AROUND_SECONDS

    @property
    def comparison_seconds(self) -> float:
        """Return after how long the comparison stops, so that the sections fit in too."""
        if self.minutes is None:
            return float("inf")
        return self.minutes * 60 - self.sections_seconds() - _AROUND_SECONDS

    @property
    def left_out(self) -> list[str]:
        """The workloads that this plan leaves to --all."""
        names = {workload.name for workload in self.workloads}
        return [name for name in WORKLOADS if name not in names]

    def describe(self, planned: Sequence[Turn]) -> list[str]:
        """Say before the run what it measures, and how long that takes at most."""
        peers = {turn.peer.name for turn in planned}
        parts = [
            f"comparison: {len(planned)} turns of {len(peers)} queues,"
            f" about {_minutes(self.turns_seconds(planned))}"
        ]
        parts += [
            f"section {name}: about {_minutes(self.section_seconds(name))}"
            for name in self.sections
        ]
        total = (
            f"in all about {_minutes(self.budget_seconds(planned))} on two cores without other load"
        )
        if self.minutes is not None:
            total += f"; no turn begins that would end too late for {self.minutes:g} min"
        return [*parts, total]


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
