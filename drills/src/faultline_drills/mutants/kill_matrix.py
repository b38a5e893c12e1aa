"""The kill matrix, which layer found which mutant, as data and Markdown. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from faultline_drills.mutants.catalogue import MUTANTS
from faultline_drills.mutants.mutation_run import MutantResult
from faultline_drills.provenance import Provenance, as_list

_BUGS = {mutant.name: mutant.bug for mutant in MUTANTS}


def as_facts(
    kills: Sequence[MutantResult], controls: Sequence[MutantResult], origin: Provenance
) -> dict[str, object]:
    return {
        **origin.facts(),
        "killed": sum(kill.killed for kill in kills),
        "of": len(kills),
        "in_the_catalogue": len(MUTANTS),
        "mutants": [{**kill.facts(), "bug": _BUGS.get(kill.mutant, "")} for kill in kills],
        "layers_on_faultline_itself": [
            {"layer": control.layer, "green": not control.killed} for control in controls
        ],
    }


def as_markdown(kills: Sequence[MutantResult], origin: Provenance) -> str:
    """The matrix without times and evidence, which differ between runs."""
    rows = [
        f"| {kill.mutant} | {_BUGS.get(kill.mutant, '')} | {kill.layer} |"
        f" {'killed' if kill.killed else '**survived**'} | {kill.rule} |"
        for kill in kills
    ]
    found = sum(kill.killed for kill in kills)
    head = [
        "# Mutants",
        "",
        "Each mutant inserts one bug into a copy of Faultline. The layer that it names, a command of",
        "`faultline drill`, then runs on the copy and must find a broken rule. On an unchanged copy every",
        "layer is valid. Some bugs keep a drill from being completed; that is noted instead of a rule.",
        "",
        as_list(origin.facts()),
        "",
        f"**{found} of {len(kills)} killed.**",
        "",
        "| mutant | bug | layer | result | broken rule |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *rows]) + "\n"
