"""Section of the report: workers under a pinned snapshot, four ways."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.goal import Goal
from benchmarks.measurement import number
from benchmarks.scaling import drain
from benchmarks.scaling.findings import Findings
from benchmarks.scaling.population import Templates
from benchmarks.section import Section, SectionContext
from benchmarks.tables import table

BOUND = 0.9


def run(context: SectionContext) -> Section:
    # The loops of plain SQL, which drain slowly, are in the section `scaling`.
    shapes = [shape for shape in drain.shapes(short=context.short, cursor=False) if shape.workers]
    missing: dict[str, str] = {}
    with ExitStack() as stack:
        drains = drain.measure(
            Templates(context.server.url, stack),
            shapes,
            seed=context.seed,
            progress=context.progress,
            missing=missing,
        )
    measured = [shape for shape in shapes if shape.name not in missing]
    return as_section(Findings(shapes=measured, drains=drains, missing=missing))


def as_section(findings: Findings) -> Section:
    rows, verdicts, facts = [], [], {}
    for shape in findings.shapes:
        ratio = findings.pinned_ratio(shape)
        facts[shape.name] = ratio.facts()
        span = f"{number(ratio.low)}–{number(ratio.high)}, n = {ratio.n}"
        rows.append([shape.name, f"{number(ratio.median)}× ({span})"])
        goal = Goal(
            f"throughput under a pinned snapshot, {shape.name}", "no pinned snapshot", BOUND
        )
        verdicts.append(goal.judge(ratio.median, "the last tenth of the jobs", span))
    about = (
        "The rate of a worker's last tenth of the jobs, while an idle transaction keeps vacuum from removing"
        " dead rows, against the same without it."
    )
    absent = [f"- {name}: {reason}" for name, reason in findings.missing.items()]
    return Section(
        title="Pinned snapshots",
        json={"ratios": facts, "not_measured": findings.missing},
        markdown="\n\n".join([about, table(["jobs", "with ÷ without"], rows), *absent]),
        verdicts=verdicts,
    )
