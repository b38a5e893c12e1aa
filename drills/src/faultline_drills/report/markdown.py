"""The report as Markdown. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from faultline_drills.provenance import as_list
from faultline_drills.report.tables import ReportTable, all_tables


def as_markdown(facts: Mapping[str, Any], plots: Sequence[str]) -> str:
    """The report as Markdown; `plots` are names of files in the same folder."""
    parts = [
        "# Faultline under faults",
        headline(facts),
        *(f"- {reason}" for reason in facts["why_not"]),
        as_list(facts),
        *(f"![{name}]({name})" for name in plots),
    ]
    for table in all_tables(facts):
        parts += [f"## {table.title}", table.about, _as_markdown(table)]
    parts += ["## Not guaranteed", "\n".join(f"- {each}" for each in facts["not_guaranteed"])]
    return "\n\n".join(parts) + "\n"


def headline(facts: Mapping[str, Any]) -> str:
    """The verdict in one sentence, with the numbers behind it."""

    def total(subject: str) -> tuple[int, int]:
        groups = [group for group in facts["groups"] if group["subject"] == subject]
        return (
            sum(group["duplicates"] for group in groups),
            sum(group["duplicate_rate"]["n"] for group in groups),
        )

    ours, jobs = total("faultline")
    control, control_jobs = total("naive")
    return (
        f"Verdict: **{facts['verdict']}**. {ours} of {jobs:,} jobs took effect more than once on"
        f" Faultline, {control} of {control_jobs:,} on the same queue without its fence, under the"
        " same faults."
    )


def _as_markdown(table: ReportTable) -> str:
    lines = [_line(table.head), _line(["---"] * len(table.head))]
    return "\n".join(lines + [_line(row) for row in table.rows])


def _line(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(escaped)} |"
