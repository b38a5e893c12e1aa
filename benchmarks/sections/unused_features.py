"""Section of the report: jobs that use no newer feature, before and after those."""

from __future__ import annotations

import contextlib
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from benchmarks.before_after import (
    BEFORE,
    REPOSITORY,
    SIDES,
    WORKLOADS,
    Sample,
    open_side,
    source_at,
    turn,
)
from benchmarks.goal import Goal
from benchmarks.measurement import Measurement, number, paired_ratio
from benchmarks.section import Section, SectionContext
from benchmarks.tables import table

BOUND = 1.03
_ROUNDS, _JOBS, _WARM_UP_JOBS = 6, 30_000, 500
Samples = dict[tuple[str, str], list[Sample]]  # by side and workload
# Processor time is disturbed less by other load than the time that passes; the goal is about it.
_OF: dict[str, Callable[[Sample], float]] = {
    "processor time": lambda sample: sample.server + sample.worker,
    "PostgreSQL's": lambda sample: sample.server,
    "the worker's": lambda sample: sample.worker,
    "time per job": lambda sample: sample.seconds,
}


def run(context: SectionContext) -> Section:
    samples: Samples = defaultdict(list)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faultline-before-")))
        sources = {"before": source_at(BEFORE, folder), "after": REPOSITORY / "src"}
        sides = {
            name: stack.enter_context(open_side(context.server, name, source))
            for name, source in sources.items()
        }
        for side in sides.values():
            turn(side, _WARM_UP_JOBS)
        for number_of_round in range(_ROUNDS):
            context.progress(f"before and after, round {number_of_round + 1} of {_ROUNDS}")
            for name in SIDES if number_of_round % 2 == 0 else reversed(SIDES):
                for workload, sample in turn(sides[name], _JOBS).items():
                    samples[name, workload].append(sample)
    return as_section(samples)


def as_section(samples: Samples) -> Section:
    rows, verdicts, facts = [], [], {}
    for workload in WORKLOADS:
        ratios = {name: _ratio(samples, workload, of) for name, of in _OF.items()}
        facts[workload] = {name: ratio.facts() for name, ratio in ratios.items() if ratio}
        rows.append([workload, *(_cell(ratio) for ratio in ratios.values())])
        goal = Goal(
            f"a job that uses no newer feature, {workload}",
            f"commit {BEFORE[:12]}, processor time",
            BOUND,
            at_least=False,
        )
        if judged := ratios["processor time"]:
            detail = f"{number(judged.low)}–{number(judged.high)}, n = {judged.n}"
            verdicts.append(goal.judge(judged.median, detail=detail))
    return Section(
        title="Jobs that use no newer feature",
        json={"before": BEFORE, "ratios": facts},
        markdown=(
            f"This source against commit {BEFORE[:12]}, in turn on one server; above 1 this source is"
            " slower.\n\n" + table(["workload", *_OF], rows)
        ),
        verdicts=verdicts,
    )


def _ratio(samples: Samples, workload: str, of: Callable[[Sample], float]) -> Measurement | None:
    before, after = (
        {at: of(sample) for at, sample in enumerate(samples[side, workload])} for side in SIDES
    )
    return paired_ratio(after, before)


def _cell(ratio: Measurement | None) -> str:
    if ratio is None:
        return "–"
    return f"{number(ratio.median)}× ({number(ratio.low)}–{number(ratio.high)})"
