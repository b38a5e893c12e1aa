"""The report of `zombies`: one run for every point and fault."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from faultline.errors import FaultlineError
from faultline.testing.zombies.points import Fault, Point


class Verdict(StrEnum):
    HELD = "held"
    VIOLATED = "violated"


class NotExercised(FaultlineError):
    """The experiments could not be carried out, so nothing is proven."""

    code = "not_exercised"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a job from the initial database, with one fault at one point."""

    point: Point
    fault: Fault
    verdict: Verdict
    reason: str | None  # what was violated
    taken_over: bool  # there was a second attempt
    refusals: int  # stale writes that PostgreSQL refused
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
    def injected(self) -> Mapping[Fault, int]:
        """At how many points each fault was injected."""
        return Counter(run.fault for run in self.runs)

    @property
    def takeovers(self) -> int:
        return sum(run.taken_over for run in self.runs)

    @property
    def refusals(self) -> int:
        return sum(run.refusals for run in self.runs)

    def __str__(self) -> str:
        """Return the table, and the log of the shortest run with a violation, if any."""
        parts = [self.summary(), self.table()]
        if self.violations:
            parts.append(
                describe_violation(min(self.violations, key=lambda run: len(run.story.lines)))
            )
        return "\n\n".join(parts)

    def summary(self) -> str:
        injected = ", ".join(f"{fault} {count}" for fault, count in self.injected.items())
        return (
            f"{self.task}: {len(self.violations)} violations in {len(self.runs)} runs"
            f" over {len(self.points)} points ({injected});"
            f" {self.takeovers} takeovers, {self.refusals} stale writes refused"
        )

    def table(self) -> str:
        """Return a table with a row for each point and a column for each fault."""
        faults = [fault for fault in Fault if self.injected.get(fault)]
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


def describe_violation(run: Run) -> str:
    return f"{run.fault} {run.point.moment}:\n\n{run.story}\n          ── violated: {run.reason}"


class ZombieEffect(AssertionError):
    """A fault violated the user's invariant; the report says at which point."""

    def __init__(self, report: ZombieReport) -> None:
        super().__init__(str(report))
        self.report = report


NO_ACTOR = ""


@dataclass(frozen=True, slots=True)
class StoryLine:
    actor: str  # "A", the worker with the fault; "B", the worker that takes over; or NO_ACTOR
    token: int | None
    text: str


class Story:
    """The log of one run: what the two workers did, in order."""

    def __init__(self) -> None:
        self._lines: list[StoryLine] = []
        self._lock = threading.Lock()

    def add(self, text: str, *, actor: str = NO_ACTOR, token: int | None = None) -> None:
        with self._lock:
            self._lines.append(StoryLine(actor, token, text))

    @property
    def lines(self) -> tuple[StoryLine, ...]:
        with self._lock:
            return tuple(self._lines)

    def __str__(self) -> str:
        return "\n".join(_format(line) for line in self.lines)


def _format(line: StoryLine) -> str:
    if line.actor == NO_ACTOR:
        return f"          ── {line.text}"
    return f"  {line.actor} token {line.token}  {line.text}"
