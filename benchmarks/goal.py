"""Goals for figures, and verdicts whether they were reached. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.measurement import number


@dataclass(frozen=True)
class GoalVerdict:
    """One row of the table of goals."""

    what: str
    against: str
    wanted: str  # "≥ 2×"
    measured: float | None  # None: not measured in this run
    reached: bool | None
    missed_by: float | None  # as a share of the bound: 0.1 means 10 % short of it
    unit: str
    note: str = ""  # the name of the best peer, or why there is no figure
    detail: str = ""  # n, and the range of the measured values
    compares: str = ""  # what of both sides is compared, if there is more than one way

    def facts(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def figure(self) -> str:
        """The measured value with its unit."""
        if self.measured is None:
            return "–"
        detail = f" ({self.detail})" if self.detail else ""
        return f"{number(self.measured)}{_after_number(self.unit)}{detail}"

    @property
    def outcome(self) -> str:
        if self.reached is None:
            return f"not measured{f': {self.note}' if self.note else ''}"
        if self.reached:
            return "reached"
        assert self.missed_by is not None  # noqa: S101 - judge() sets both
        return f"missed by {self.missed_by:.0%}"


@dataclass(frozen=True)
class Goal:
    """A bound on a figure; with the unit `×`, on a ratio of Faultline to a peer."""

    what: str
    against: str
    bound: float
    at_least: bool = True  # false: at most
    unit: str = "×"
    compares: str = ""

    def judge(self, measured: float | None, note: str = "", detail: str = "") -> GoalVerdict:
        sign = "≥" if self.at_least else "≤"
        wanted = f"{sign} {self.bound:g}{_after_number(self.unit)}"
        reached = missed_by = None
        if measured is not None:
            missing = self.bound - measured if self.at_least else measured - self.bound
            reached = missing <= 0
            missed_by = None if reached else missing / self.bound
        return GoalVerdict(
            what=self.what,
            against=self.against,
            wanted=wanted,
            measured=measured,
            reached=reached,
            missed_by=missed_by,
            unit=self.unit,
            note=note,
            detail=detail,
            compares=self.compares,
        )


def _after_number(unit: str) -> str:
    return unit if unit in ("×", "") else f" {unit}"
