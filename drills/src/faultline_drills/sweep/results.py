"""What became of a point, and of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from faultline_drills.judging.checker import DrillFinding, Verdict
from faultline_drills.subjects import Subject
from faultline_drills.sweep.point import MessageLabel, SweepFault, SweepPoint, SweepTarget

TOLERATED_SHARE = 0.03  # of points that were not reached: more, and the sweep has shown too little


@dataclass(frozen=True, slots=True)
class PointResult:
    point: SweepPoint
    fault: SweepFault
    verdict: Verdict  # unknown: not reached
    findings: tuple[DrillFinding, ...]
    tally: Mapping[str, int]
    seconds: float

    def facts(self) -> dict[str, Any]:
        return {
            "target": self.point.target,
            "point": str(self.point),
            "fault": self.fault,
            "verdict": self.verdict,
            "findings": [asdict(finding) for finding in self.findings],
            "tally": {name: count for name, count in self.tally.items() if count},
            "seconds": round(self.seconds, 2),
        }


@dataclass(frozen=True, slots=True)
class SweepReport:
    subject: Subject
    seed: int
    messages: Mapping[SweepTarget, int]  # that the process sends in a run without a fault
    available: int  # strikes that a full sweep consists of
    results: tuple[PointResult, ...]
    seconds: float
    tally: Mapping[str, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()  # what was asked for and would have shown nothing, and why

    @property
    def unreached(self) -> list[PointResult]:
        return [result for result in self.results if result.verdict is Verdict.UNKNOWN]

    @property
    def violations(self) -> list[PointResult]:
        return [result for result in self.results if result.verdict is Verdict.INVALID]

    @property
    def missing(self) -> list[str]:
        """Why it has shown too little, if it has."""
        said = []
        if not self.results:
            said.append("nothing was struck")
        if len(self.unreached) > TOLERATED_SHARE * len(self.results):
            said.append(f"{len(self.unreached)} of {len(self.results)} points were not reached")
        said += [f"{what}: none" for what in self._expected() if not self.tally.get(what)]
        return said

    def _expected(self) -> Iterable[str]:
        """What strikes of these kinds must have brought about; one or two may miss, many may not."""
        struck = Counter(
            result.fault for result in self.results if not result.point.target.migrates
        )
        if struck[SweepFault.KILL_BEFORE] + struck[SweepFault.KILL_AFTER] >= 20:
            yield "takeovers"
        if struck[SweepFault.DROP_REPLY] >= 60:
            yield "lost_acks"
        if (
            struck[SweepFault.STOP] + struck[SweepFault.OVERLAP] >= 60
            and self.subject is Subject.FAULTLINE
        ):
            yield "stale_rejections"

    @property
    def verdict(self) -> Verdict:
        if self.violations:
            return Verdict.INVALID
        return Verdict.UNKNOWN if self.missing else Verdict.VALID

    def matrix(self) -> dict[tuple[SweepTarget, MessageLabel], dict[SweepFault, Counter[Verdict]]]:
        """By label and fault: how many points ended how."""
        rows: dict[tuple[SweepTarget, MessageLabel], dict[SweepFault, Counter[Verdict]]] = {}
        for result in self.results:
            row = rows.setdefault((result.point.target, result.point.label), {})
            row.setdefault(result.fault, Counter())[result.verdict] += 1
        return rows

    def facts(self) -> dict[str, Any]:
        return {
            "kind": "sweep",
            "subject": self.subject,
            "seed": self.seed,
            "verdict": self.verdict,
            "missing": self.missing,
            "left_out": self.left_out,
            "messages": dict(self.messages),
            "available": self.available,
            "struck": len(self.results),
            "not_reached": len(self.unreached),
            "violations": len(self.violations),
            "tally": {name: count for name, count in self.tally.items() if count},
            "seconds": round(self.seconds, 1),
            "points": [result.facts() for result in self.results],
        }
