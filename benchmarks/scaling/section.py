"""The results as a section of the performance report."""

from __future__ import annotations

from benchmarks.scaling.findings import Findings
from benchmarks.scaling.markdown import as_markdown
from benchmarks.scaling.parts import MeasurementOptions, measure
from benchmarks.scaling.plots import figures
from benchmarks.section import Section, SectionContext

TITLE = "Large tables, pinned snapshots, idle workers"


def run(context: SectionContext) -> Section:
    options = MeasurementOptions(
        context.server.url,
        is_own_server=False,
        short=context.short,
        seed=context.seed,
        progress=context.progress,
    )
    return as_section(measure(options))


def as_section(findings: Findings) -> Section:
    return Section(
        title=TITLE,
        json=findings.facts(),
        markdown=as_markdown(findings),
        figures=figures(findings),
        verdicts=findings.verdicts(),
    )
