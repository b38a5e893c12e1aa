"""The result of each point of a sweep, and the report of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from faultline_drills.judging.checker import DrillFinding, DrillVerdict
from faultline_drills.subjects import Subject
from faultline_drills.sweep.point import MessageLabel, SweepFault, SweepPoint, SweepTarget

TOLERATED_SHARE = 0.03  # of points that were not reached; with more, the sweep is inconclusive
ERROR_RULE = "error"  # of the finding that says which error ended a point


@dataclass(frozen=True, slots=True)
class PointResult:
    point: SweepPoint
    fault: SweepFault
    verdict: DrillVerdict  # unknown: not reached, or ended by an error
    findings: tuple[DrillFinding, ...]
    tally: Mapping[str, int]
    seconds: float
    is_error: bool = False

    def facts(self) -> dict[str, Any]:
        return {
            "target": self.point.target,
            "point": str(self.point),
            "fault": self.fault,
            "verdict": self.verdict,
            "is_error": self.is_error,
            "findings": [asdict(finding) for finding in self.findings],
            "tally": {name: count for name, count in self.tally.items() if count},
            "seconds": round(self.seconds, 2),
        }


@dataclass(frozen=True, slots=True)
class SweepReport:
    subject: Subject
    seed: int
    messages: Mapping[SweepTarget, int]  # sent by the process in a run without a fault
    available: int  # points times faults of a full sweep
    results: tuple[PointResult, ...]
    seconds: float
    tally: Mapping[str, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()  # requested targets that would show nothing, and why

    @property
    def errors(self) -> list[PointResult]:
        return [result for result in self.results if result.is_error]

    @property
    def unreached(self) -> list[PointResult]:
        return [
            result
            for result in self.results
            if result.verdict is DrillVerdict.UNKNOWN and not result.is_error
        ]

    @property
    def violations(self) -> list[PointResult]:
        return [result for result in self.results if result.verdict is DrillVerdict.INVALID]

    @property
    def missing(self) -> list[str]:
        """Why the sweep is inconclusive; empty if it is not."""
        reasons = []
        if not self.results:
            reasons.append("no fault was injected")
        if self.errors:
            reasons.append(f"{len(self.errors)} of {len(self.results)} points ended with an error")
        if len(self.unreached) > TOLERATED_SHARE * len(self.results):
            reasons.append(f"{len(self.unreached)} of {len(self.results)} points were not reached")
        reasons += [f"{what}: none" for what in self._expected() if not self.tally.get(what)]
        return reasons

    def _expected(self) -> Iterable[str]:
        """What many faults of one kind must have caused; one or two alone need not."""
        faults = Counter(result.fault for result in self.results if result.point.target.holds_jobs)
        if faults[SweepFault.KILL_BEFORE] + faults[SweepFault.KILL_AFTER] >= 20:
            yield "takeovers"
        if faults[SweepFault.DROP_REPLY] >= 60:
            yield "lost_acks"
        stops = faults[SweepFault.STOP] + faults[SweepFault.OVERLAP]
        if stops >= 60 and self.subject is Subject.FAULTLINE:
            yield "stale_rejections"

    @property
    def verdict(self) -> DrillVerdict:
        if self.violations:
            return DrillVerdict.INVALID
        return DrillVerdict.UNKNOWN if self.missing else DrillVerdict.VALID

    def matrix(
        self,
    ) -> dict[tuple[SweepTarget, MessageLabel], dict[SweepFault, Counter[DrillVerdict]]]:
        """By target, label and fault: how many points got which verdict."""
        rows: dict[tuple[SweepTarget, MessageLabel], dict[SweepFault, Counter[DrillVerdict]]] = {}
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
            "errors": len(self.errors),
            "violations": len(self.violations),
            "tally": {name: count for name, count in self.tally.items() if count},
            "seconds": round(self.seconds, 1),
            "points": [result.facts() for result in self.results],
        }
