"""The explorer finds the naive queue's violations and every inserted bug."""

from __future__ import annotations

from typing import Any

import pytest

from faultline.statements import protocol
from faultline.workers import unanswered_commit
from faultline.workers.leases import Lease
from faultline.workers.outcomes import Outcomes
from faultline_drills.explorer import ExploreReport, explore
from faultline_drills.judging.checker import DrillVerdict
from faultline_drills.subjects import Subject, install
from tests.explorer.mutants import MUTANTS, SqlMutant
from tests.proof import Tally
from tests.slow import slow_unless

NAIVE_INTERLEAVINGS = 40  # enough for each of the programs below
MUTANT_INTERLEAVINGS = 80
REVEALING_PROGRAMS = [
    "takeover",
    "own-transaction",
    "stale-failure-report",
    "mistaken-for-dead",
    "repeated-commit",
    "late-commit",
]


def count(tally: Tally, report: ExploreReport) -> None:
    counts = report.counts
    tally(
        "explorer control",
        scenarios=report.interleavings,
        takeovers=counts["takeovers"],
        commits=counts["commits"],
    )


@pytest.mark.parametrize("program", slow_unless(REVEALING_PROGRAMS, "takeover", "late-commit"))
def test_the_naive_queue_breaks_a_rule(empty_database_url: str, tally: Tally, program: str) -> None:
    install(Subject.NAIVE, empty_database_url)
    report = explore(
        empty_database_url,
        [program],
        max_preemptions=2,
        max_interleavings=NAIVE_INTERLEAVINGS,
        shrinks=False,
    )
    assert report.verdict is DrillVerdict.INVALID
    count(tally, report)


@pytest.mark.parametrize(
    "mutant",
    slow_unless(MUTANTS, *MUTANTS[:3]),
    ids=lambda mutant: mutant.name.replace(" ", "-"),
)
def test_an_inserted_bug_is_found(database_url: str, tally: Tally, mutant: SqlMutant) -> None:
    mutant.apply(database_url)
    report = explore(
        database_url,
        mutant.programs[:1],
        max_preemptions=2,
        max_interleavings=MUTANT_INTERLEAVINGS,
        shrinks=False,
    )
    assert report.verdict is DrillVerdict.INVALID
    count(tally, report)


async def treats_a_missing_entry_as_failure(
    outcomes: Outcomes, lease: Lease, error: Exception | None, **_: Any
) -> None:
    """Wrong: the commit may still arrive."""
    if await outcomes.session.run(protocol.in_ledger(lease.claim)):
        outcomes.committed(lease)
    else:
        outcomes.finish(lease, exit_reason="failed")


async def treats_a_sent_commit_as_done(
    outcomes: Outcomes, lease: Lease, error: Exception | None, **_: Any
) -> None:
    """Wrong: the commit may never arrive."""
    outcomes.committed(lease)


@pytest.mark.parametrize(
    "resolve", [treats_a_missing_entry_as_failure, treats_a_sent_commit_as_done]
)
def test_a_worker_that_guesses_the_outcome_of_its_commit_is_found(
    database_url: str, monkeypatch: pytest.MonkeyPatch, tally: Tally, resolve: Any
) -> None:
    """The explorer runs the library's own code, so it finds bugs of the worker too."""
    monkeypatch.setattr(unanswered_commit, "resolve", resolve)
    report = explore(
        database_url,
        ["late-commit"],
        max_preemptions=2,
        max_interleavings=MUTANT_INTERLEAVINGS,
        shrinks=False,
    )
    assert report.counterexample is not None
    assert report.counterexample.execution.broken_rules & {
        "failed_attempts_left_nothing",
        "reported_commits_are_in_the_ledger",
    }
    count(tally, report)


def test_a_run_without_the_needed_events_is_unknown_not_valid(database_url: str) -> None:
    report = explore(database_url, ["three-claimants"], max_preemptions=0, max_interleavings=3)
    assert report.verdict is DrillVerdict.UNKNOWN
    assert "no stale rejections" in report.missing
