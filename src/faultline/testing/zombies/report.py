"""What a kit of zombies found: every point, every fault, and the story of a violation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from faultline.errors import FaultlineError
from faultline.testing.zombies.faults import Fault
from faultline.testing.zombies.points import Point
from faultline.testing.zombies.story import Story


class Verdict(StrEnum):
    HELD = "held"
    VIOLATED = "violated"


class NotExercised(FaultlineError):
    """The kit did not do what it claims to: nothing is proven, in either direction."""

    code = "not_exercised"


@dataclass(frozen=True, slots=True)
class Run:
    """One fault at one point, from a clean slate to the job's end."""

    point: Point
    fault: Fault
    verdict: Verdict
    reason: str | None  # what was violated
    taken_over: bool  # a second attempt was made
    refusals: int  # stale writes that the database refused
    story: Story


@dataclass(frozen=True, slots=True)
class ZombieReport:
    task: str
    points: tuple[Point, ...]
    runs: tuple[Run, ...]

    @property
    def violations(self) -> tuple[Run, ...]:
        return tuple(run for run in self.runs if run.verdict is Verdict.VIOLATED)

    @property
    def struck(self) -> Mapping[Fault, int]:
        """How many points were struck by each fault."""
        return Counter(run.fault for run in self.runs)

    @property
    def takeovers(self) -> int:
        return sum(run.taken_over for run in self.runs)

    @property
    def refusals(self) -> int:
        return sum(run.refusals for run in self.runs)

    def __str__(self) -> str:
        """The table, and the shortest story of a violation if there is any."""
        parts = [self.summary(), self.table()]
        if self.violations:
            parts.append(told(min(self.violations, key=lambda run: len(run.story.lines))))
        return "\n\n".join(parts)

    def summary(self) -> str:
        struck = ", ".join(f"{fault} {count}" for fault, count in self.struck.items())
        return (
            f"{self.task}: {len(self.violations)} violations in {len(self.runs)} runs"
            f" over {len(self.points)} points ({struck});"
            f" {self.takeovers} takeovers, {self.refusals} stale writes refused"
        )

    def table(self) -> str:
        """A row for each point, a column for each fault."""
        faults = [fault for fault in Fault if self.struck.get(fault)]
        found = {(run.point, run.fault): run for run in self.runs}
        digits = len(str(len(self.points)))
        names = [f"{number:{digits}}. {point}" for number, point in enumerate(self.points, start=1)]
        width = max(map(len, names))
        lines = [" ".join([" " * width, *map(str, faults)])]
        for name, point in zip(names, self.points, strict=True):
            cells = [_cell(found.get((point, fault))).ljust(len(fault)) for fault in faults]
            lines.append(" ".join([name.ljust(width), *cells]).rstrip())
        return "\n".join(lines)


def _cell(run: Run | None) -> str:
    if run is None:
        return "-"
    return "ok" if run.verdict is Verdict.HELD else "FAIL"


def told(run: Run) -> str:
    return f"{run.fault} {run.point.moment}:\n\n{run.story}\n          ── violated: {run.reason}"


class ZombieEffect(AssertionError):
    """The user's invariant does not survive a fault. The report says where, and how."""

    def __init__(self, report: ZombieReport) -> None:
        super().__init__(str(report))
        self.report = report
