"""The kill matrix: which bug was found by which layer, as facts and as a page. Pure."""

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
    """Without the times of each run, and the ids in its evidence: they differ from run to run."""
    rows = [
        f"| {kill.mutant} | {_BUGS.get(kill.mutant, '')} | {kill.layer} |"
        f" {'killed' if kill.killed else '**survived**'} | {kill.rule} |"
        for kill in kills
    ]
    found = sum(kill.killed for kill in kills)
    head = [
        "# Mutants",
        "",
        "Each bug is inserted into a copy of Faultline, and the layer that it names runs on the copy. It is",
        "green on Faultline itself, and must find a rule broken here. Where the bug keeps a story from",
        "being told at all, that is said instead.",
        "",
        as_list(origin.facts()),
        "",
        f"**{found} of {len(kills)} killed.**",
        "",
        "| mutant | the bug | layer | | what gave it away |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *rows]) + "\n"
