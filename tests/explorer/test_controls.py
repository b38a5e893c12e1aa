"""The explorer has been seen to find what it is for: the queue without its fence, and planted bugs."""

from __future__ import annotations

from typing import Any

import pytest

from faultline.statements import protocol
from faultline.workers.leases import Lease
from faultline.workers.outcomes import Outcomes
from faultline_drills.explorer import ExploreReport, explore
from faultline_drills.judging.checker import Verdict
from faultline_drills.subjects import Subject, install
from tests.explorer.mutants import MUTANTS, SqlMutant
from tests.proof import Tally

NAIVE_BOUND = 40  # interleavings, for any of the programs below
MUTANT_BOUND = 80
STRIKING = [
    "takeover",
    "own-transaction",
    "late-failure",
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


@pytest.mark.parametrize("program", STRIKING)
def test_the_naive_queue_is_found_out(empty_database_url: str, tally: Tally, program: str) -> None:
    install(Subject.NAIVE, empty_database_url)
    report = explore(
        empty_database_url,
        [program],
        max_preemptions=2,
        max_interleavings=NAIVE_BOUND,
        shrinks=False,
    )
    assert report.verdict is Verdict.INVALID
    count(tally, report)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_planted_bug_is_found(database_url: str, tally: Tally, mutant: SqlMutant) -> None:
    mutant.apply(database_url)
    report = explore(
        database_url,
        mutant.programs[:1],
        max_preemptions=2,
        max_interleavings=MUTANT_BOUND,
        shrinks=False,
    )
    assert report.verdict is Verdict.INVALID
    count(tally, report)


async def takes_absence_for_failure(
    self: Outcomes, lease: Lease, error: Exception | None, **_: Any
) -> None:
    """No entry in the ledger: so the commit has failed, has it not?"""
    if await self._slow_path.run(protocol.in_ledger(lease.claim)):
        self.committed(lease)
    else:
        self.finish(lease, exit_reason="failed")


async def takes_it_for_done(
    self: Outcomes, lease: Lease, error: Exception | None, **_: Any
) -> None:
    """It was sent, and networks are good: so it has arrived, has it not?"""
    self.committed(lease)


@pytest.mark.parametrize("resolve", [takes_absence_for_failure, takes_it_for_done])
def test_a_worker_that_guesses_what_became_of_its_commit_is_found_out(
    database_url: str, monkeypatch: pytest.MonkeyPatch, tally: Tally, resolve: Any
) -> None:
    """Bugs of the library's own code are seen too, since it is what runs."""
    monkeypatch.setattr(Outcomes, "resolve", resolve)
    report = explore(
        database_url,
        ["late-commit"],
        max_preemptions=2,
        max_interleavings=MUTANT_BOUND,
        shrinks=False,
    )
    assert report.counterexample is not None
    assert report.counterexample.execution.broken_rules & {
        "failed_attempts_left_nothing",
        "reported_commits_are_in_the_ledger",
    }
    count(tally, report)


def test_a_run_in_which_nothing_happened_is_not_a_success(database_url: str) -> None:
    report = explore(database_url, ["three-claimants"], max_preemptions=0, max_interleavings=3)
    assert report.verdict is Verdict.UNKNOWN
    assert "no stale rejections" in report.missing
