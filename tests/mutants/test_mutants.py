"""Mutants fit the source and are found; a harmless change is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import faultline
from faultline_drills.mutants.catalogue import MUTANTS
from faultline_drills.mutants.mutant import MISMATCHED, PROTOCOL, Edit, Mutant, drill
from faultline_drills.mutants.mutation_run import MutantNotPlanted, mutated_copy, run_layer
from faultline_drills.scenario import all_scenarios
from tests.proof import Tally
from tests.slow import slow_unless

PACKAGE = Path(faultline.__file__).parent
LOCK = re.compile(r"FOR (NO KEY )?UPDATE|FOR KEY SHARE")
QUICK = (
    *("token_predicate_dropped", "heartbeat_unfenced", "ledger_keyed_by_the_pair"),
    *("schedule_fires_while_paused", "declared_key_not_bound"),
    *("batch_fences_its_first_job_only", "entry_of_a_lost_job_skipped"),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits_the_source_as_it_stands(mutant: Mutant) -> None:
    for edit in mutant.edits:
        assert (PACKAGE / edit.path).read_text().count(edit.old) == 1
        assert edit.old != edit.new


# Locks that no drill depends on: the registry's protects nothing, and the other one is taken only above
# READ COMMITTED, which tests/protocol/test_isolation.py covers.
UNTESTED_LOCKS = ("FROM faultline.workers", "assert_fence.job_id FOR NO KEY UPDATE")


def test_every_row_lock_of_the_protocol_is_removed_by_a_mutant() -> None:
    text = (PACKAGE / PROTOCOL).read_text()
    lines = [line for line in text.splitlines() if LOCK.search(line) and "--" not in line]
    weakened = [edit.old for mutant in MUTANTS for edit in mutant.edits if LOCK.search(edit.old)]
    assert len(lines) >= 9
    for line in lines:
        is_untested = any(untested in line for untested in UNTESTED_LOCKS)
        is_weakened = any(_locking(old) in line for old in weakened)
        assert is_untested or is_weakened, line


def _locking(old: str) -> str:
    """The line of an edit with the lock; it may start within a source line."""
    (line,) = [line for line in old.splitlines() if LOCK.search(line)]
    return line


def test_names_are_unique_and_every_named_drill_exists() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25
    known = all_scenarios()
    for mutant in MUTANTS:
        kind, *names = mutant.killed_by.name.split()
        assert kind == "explorer" or set(names) <= set(known)


@pytest.mark.parametrize(
    "name", slow_unless(QUICK, "token_predicate_dropped", "schedule_fires_while_paused")
)
def test_an_inserted_bug_is_found(name: str, server_url: str, tally: Tally) -> None:
    (mutant,) = [each for each in MUTANTS if each.name == name]
    kill = run_layer(mutant, mutant.killed_by, server_url=server_url)
    tally("mutant as a control", scenarios=1)
    assert kill.killed, kill.how


def test_a_harmless_change_is_not_killed(server_url: str) -> None:
    function = "CREATE OR REPLACE FUNCTION faultline.fence_violation("
    harmless = Edit(PROTOCOL, function, f"-- a comment\n{function}")
    kill = run_layer(
        Mutant("none", "no bug", MISMATCHED, (harmless,)), MISMATCHED, server_url=server_url
    )
    assert not kill.killed, kill.how


def test_an_edit_that_no_longer_fits_is_an_error_and_not_a_kill() -> None:
    stranger = Mutant(
        "gone", "", drill("mismatched_token_or_lease"), (Edit(PROTOCOL, "no such text", ""),)
    )
    with pytest.raises(MutantNotPlanted, match="0 times"), mutated_copy(stranger):
        pass


@pytest.mark.slow
def test_a_copy_that_does_not_run_is_no_kill(server_url: str) -> None:
    broken = Edit("task.py", "from __future__ import annotations", "from __future__ import (")
    kill = run_layer(Mutant("typo", "", MISMATCHED, (broken,)), MISMATCHED, server_url=server_url)
    assert not kill.killed, kill.how
