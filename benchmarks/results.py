"""The results of a run as one object that can be written as JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.comparison import Sample, excluded_because
from benchmarks.comparison_goals import judge_comparison
from benchmarks.goal import GoalVerdict
from benchmarks.measurement import Measurement, measurement, paired_ratio
from benchmarks.peer import FAULTLINE, Peer
from benchmarks.section import Section
from benchmarks.workloads import MEASURES, WORKLOADS


@dataclass(frozen=True)
class Participant:
    """A peer in this run, with its versions or the reason why it is not installed."""

    peer: Peer
    versions: Mapping[str, str] = field(default_factory=dict)
    not_installed: str | None = None

    @property
    def version(self) -> str:
        """The version of the first package in peer.toml."""
        return next(iter(self.versions.values()), "")

    def facts(self) -> dict[str, Any]:
        return {
            "title": self.peer.title,
            "broker": self.peer.broker,
            "runtime": self.peer.runtime,
            "settings": self.peer.settings,
            "versions": dict(self.versions),
            "not_installed": self.not_installed,
            "cannot": {
                name: reason
                for name, workload in WORKLOADS.items()
                if workload.only is None and (reason := excluded_because(self.peer, workload))
            },
        }


@dataclass(frozen=True)
class Results:
    origin: Mapping[str, Any]  # command, commit, seed, machine, versions
    settings: Mapping[str, Any]  # of the run and of the servers
    participants: Sequence[Participant]
    samples: Sequence[Sample]
    sections: Mapping[str, Section] = field(default_factory=dict)
    missing_sections: Mapping[str, str] = field(default_factory=dict)  # by name: the reason
    is_interrupted: bool = False
    turns_left: int = 0  # planned turns that were not taken
    left_out: Sequence[str] = ()  # workloads and sections that only --all runs

    def by_repeat(self, measure: str, peer: str) -> dict[int, float]:
        return {
            sample.repeat: sample.values[measure]
            for sample in self.samples
            if sample.peer == peer and measure in sample.values
        }

    def measured(self, measure: str, peer: str) -> Measurement | None:
        values = self.by_repeat(measure, peer)
        return measurement(list(values.values())) if values else None

    def ratio(self, measure: str, peer: str) -> Measurement | None:
        """Return the ratio of Faultline to this peer."""
        theirs = self.by_repeat(measure, peer)
        if not theirs and (other := MEASURES[measure].compared_with):
            theirs = self.by_repeat(other, peer)
        return paired_ratio(self.by_repeat(measure, FAULTLINE), theirs)

    @property
    def installed(self) -> list[Participant]:
        return [
            participant for participant in self.participants if participant.not_installed is None
        ]

    @property
    def measures(self) -> list[str]:
        """The measures with at least one figure, in the order of the report."""
        return [
            name
            for name in MEASURES
            if any(self.measured(name, e.peer.name) for e in self.installed)
        ]

    @property
    def verdicts(self) -> list[GoalVerdict]:
        of_sections = [row for section in self.sections.values() for row in section.verdicts]
        return [*judge_comparison(self), *of_sections]

    def facts(self) -> dict[str, Any]:
        peers = [participant.peer.name for participant in self.installed]
        return {
            "format": 1,
            **self.origin,
            "settings": dict(self.settings),
            "peers": {
                participant.peer.name: participant.facts() for participant in self.participants
            },
            "workloads": {name: workload.about for name, workload in WORKLOADS.items()},
            "figures": {
                measure: {
                    "unit": MEASURES[measure].unit,
                    "higher_is_better": MEASURES[measure].higher_is_better,
                    "peers": _known({peer: self.measured(measure, peer) for peer in peers}),
                    "ratios_to_faultline": _known(
                        {peer: self.ratio(measure, peer) for peer in peers if peer != FAULTLINE}
                    ),
                }
                for measure in self.measures
            },
            "to_reach": [verdict.facts() for verdict in self.verdicts],
            "sections": {name: dict(section.json) for name, section in self.sections.items()},
            "missing_sections": dict(self.missing_sections),
            "interrupted": self.is_interrupted,
            "turns_left": self.turns_left,
            "left_out": list(self.left_out),
            "samples": [sample.facts() for sample in self.samples],
        }


def _known(found: Mapping[str, Measurement | None]) -> dict[str, dict[str, Any]]:
    return {name: value.facts() for name, value in found.items() if value is not None}
