"""What was explored, as a Markdown page. Pure."""

from __future__ import annotations

from faultline.wording import count
from faultline_drills.explorer.explorer import ExploreReport, ProgramReport
from faultline_drills.explorer.programs import description_of
from faultline_drills.provenance import Provenance, as_list


def as_markdown(report: ExploreReport, origin: Provenance) -> str:
    head = [
        "# Explored interleavings",
        "",
        "Real sessions run the library's own code, one statement at a time, in every order with up to some",
        "number of preemptions; [the explorer](../drills/explorer.md) says what is judged. *Complete to 2*",
        "means that every order with up to two preemptions was run, and *-* that the budget ended before.",
        "",
        as_list(origin.facts()),
        "",
        f"**{report.interleavings:,} different interleavings of {count(len(report.programs), 'program')}:"
        f" {report.verdict.value}.**",
        "",
        "| program | what happens | interleavings | complete to | commits | verdict |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *map(_row, report.programs)]) + "\n"


def _row(program: ProgramReport) -> str:
    verdict = "not run" if not program.executed else "valid"
    if program.counterexample is not None:
        verdict = "**invalid**"
    complete = "-" if program.complete_bound < 0 else str(program.complete_bound)
    description = " ".join(description_of(program.name).split())
    return (
        f"| {program.name} | {description} | {program.interleavings:,} | {complete} |"
        f" {program.counts['commits']:,} | {verdict} |"
    )
