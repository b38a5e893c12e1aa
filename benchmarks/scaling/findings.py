"""The results of the parts: measurements, ratios and verdicts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.goal import Goal, GoalVerdict
from benchmarks.measurement import Measurement, measurement, paired_ratio
from benchmarks.scaling.claims import BATCHES, Cost
from benchmarks.scaling.drain import Drain, Shape
from benchmarks.scaling.idle import Load
from benchmarks.scaling.maintenance import MaintenanceTimes
from benchmarks.scaling.memory import Footprint

CLAIM_BOUND, PINNED_BOUND = 1.1, 0.85
MEMORY_BOUNDS = {"idle": 80.0, "1,000 jobs running": 150.0}


@dataclass
class Findings:
    """The results of each part; empty if the part was not run."""

    costs: list[Cost] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)
    drains: list[Drain] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    footprints: list[Footprint] = field(default_factory=list)
    maintenance_times: dict[int, MaintenanceTimes] = field(
        default_factory=dict
    )  # by number of finished jobs
    missing: dict[str, str] = field(default_factory=dict)  # part or shape: the reason

    # ── claims ───────────────────────────────────────────────────────────────────────────────────

    def claim_ratio(self, cost: Cost, size: int) -> Measurement:
        """Return the ratio to the case it is compared with, computed per round."""
        base = next(other for other in self.costs if other.case.name == cost.case.against)
        ratio = paired_ratio(_numbered(cost.rounds[size]), _numbered(base.rounds[size]))
        assert ratio is not None  # noqa: S101 - every case is measured in every round
        return ratio

    # ── drains ───────────────────────────────────────────────────────────────────────────────────

    def drains_of(self, shape: Shape, *, held: bool) -> list[Drain]:
        return [each for each in self.drains if (each.shape, each.held) == (shape.name, held)]

    def tenth(self, shape: Shape, number: int, *, held: bool) -> Measurement:
        """Return the jobs per second in one tenth; -1 is the last."""
        return measurement([each.rates[number] for each in self.drains_of(shape, held=held)])

    def pinned_ratio(self, shape: Shape) -> Measurement:
        """Return the ratio of the last tenths with and without the pinned snapshot."""
        held = {each.repeat: each.rates[-1] for each in self.drains_of(shape, held=True)}
        free = {each.repeat: each.rates[-1] for each in self.drains_of(shape, held=False)}
        ratio = paired_ratio(held, free)
        assert ratio is not None  # noqa: S101 - every repeat is measured both ways
        return ratio

    # ── memory ───────────────────────────────────────────────────────────────────────────────────

    def peaks(self) -> dict[str, Measurement]:
        names = dict.fromkeys(each.what for each in self.footprints)
        return {
            name: measurement([each.memory.peak for each in self.footprints if each.what == name])
            for name in names
        }

    # ── verdicts and facts ────────────────────────────────────────────────────────────────────────────────

    def verdicts(self) -> list[GoalVerdict]:
        found = [self._judge_claims(cost) for cost in self.costs if cost.case.judged]
        found += [self._judge_pinned(shape) for shape in self.shapes if shape.workers]
        for name, bound in MEMORY_BOUNDS.items():
            if name in (peaks := self.peaks()):
                goal = Goal(
                    f"memory of a worker, {name}", "a bound", bound, at_least=False, unit="MB"
                )
                found.append(goal.judge(peaks[name].median, "highest resident size"))
        return found

    def _judge_claims(self, cost: Cost) -> GoalVerdict:
        by_size = {size: self.claim_ratio(cost, size).median for size in BATCHES}
        worst = max(by_size, key=lambda size: by_size[size])
        goal = Goal(f"claim cost, {cost.case.name}", cost.case.against, CLAIM_BOUND, at_least=False)
        return goal.judge(by_size[worst], f"claims of {worst}: the worse of {BATCHES}")

    def _judge_pinned(self, shape: Shape) -> GoalVerdict:
        goal = Goal(
            f"throughput under a pinned snapshot, {shape.name}",
            "no pinned snapshot",
            PINNED_BOUND,
        )
        done = shape.aged + min(each.jobs for each in self.drains_of(shape, held=True))
        return goal.judge(self.pinned_ratio(shape).median, f"the last tenth, after {done:,} jobs")

    def facts(self) -> dict[str, Any]:
        """Return every sample, and the computed figures."""
        return {
            "claims": [self._claim_facts(cost) for cost in self.costs],
            "pinned_snapshot": [self._drain_facts(shape) for shape in self.shapes],
            "idle_workers": [asdict(load) for load in self.loads],
            "memory_mb": [asdict(each) for each in self.footprints],
            "maintenance": [asdict(times) for times in self.maintenance_times.values()],
            "not_measured": self.missing,
        }

    def _claim_facts(self, cost: Cost) -> dict[str, Any]:
        return {
            "case": asdict(cost.case),
            "milliseconds": {str(size): measurement(cost.rounds[size]).facts() for size in BATCHES},
            "ratio": {str(size): self.claim_ratio(cost, size).facts() for size in BATCHES},
            "claims": {str(size): cost.claims[size] for size in BATCHES},
            "pages": {str(size): measurement(cost.pages[size]).facts() for size in BATCHES},
            "rounds": {str(size): cost.rounds[size] for size in BATCHES},
        }

    def _drain_facts(self, shape: Shape) -> dict[str, Any]:
        samples = [asdict(each) for each in self.drains if each.shape == shape.name]
        return {
            "shape": asdict(shape),
            "ratio_of_last_tenths": self.pinned_ratio(shape).facts(),
            "drains": samples,
        }


def _numbered(values: Sequence[float]) -> Mapping[int, float]:
    return dict(enumerate(values))
