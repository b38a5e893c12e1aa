"""The history of a drill, and the figures that are computed from it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from faultline_drills.judging.measures import quantile, recoveries, wilson_interval
from faultline_drills.recording.history import History, HistoryEntry, Phase, Verb

# ── histories ────────────────────────────────────────────────────────────────────────────────────


def test_a_history_that_is_written_and_read_again_is_the_same(tmp_path: Path) -> None:
    history = History()
    history.end(history.invoke("producer", Verb.SUBMIT, key="k"), Phase.OK, job="j", key="k")
    history.record("w1", Verb.CLAIM, job="j", token=1)
    history.end(history.invoke("w1", Verb.ATTEMPT, job="j", token=1), Phase.FAIL, reason="stale")
    history.record("w1", Verb.FAULT, job=None, token=None, kind="kill", point="half")
    history.invoke("w9", Verb.ATTEMPT, job="j", token=3)  # never ended
    path = tmp_path / "history.jsonl"
    history.write(path)
    again = History.read(path)
    assert again.entries == history.entries
    assert again.operations() == history.operations()
    assert [fault.detail["kind"] for fault in again.faults()] == ["kill"]


def test_the_first_end_of_an_operation_counts() -> None:
    history = History()
    number = history.invoke("w1", Verb.ATTEMPT, job="j", token=1)
    history.end(number, Phase.OK)
    history.end(number, Phase.FAIL)
    (operation,) = history.operations(Verb.ATTEMPT)
    assert operation.outcome is Phase.OK


def test_open_operations_of_an_ended_process_have_an_unknown_outcome() -> None:
    history = History()
    history.invoke("dies", Verb.ATTEMPT, job="j", token=1)
    survivor = history.invoke("lives", Verb.ATTEMPT, job="k", token=1)
    history.mark_unknown("dies")
    history.end(survivor, Phase.OK)
    outcomes = {each.process: each.outcome for each in history.operations(Verb.ATTEMPT)}
    assert outcomes == {"dies": Phase.INFO, "lives": Phase.OK}


def test_an_operation_includes_the_details_of_its_end() -> None:
    history = History()
    number = history.invoke("producer", Verb.SUBMIT, key="k")
    history.end(number, Phase.OK, job="j")
    (operation,) = history.operations(Verb.SUBMIT)
    assert (operation.job, operation.detail) == ("j", {"key": "k"})
    assert operation.ended is not None
    assert operation.ended >= operation.began


# ── figures ──────────────────────────────────────────────────────────────────────────────────────


def entry(at: float, phase: Phase, verb: Verb, operation: int, job: str = "j") -> HistoryEntry:
    return HistoryEntry(at, "w", phase, verb, operation, job, 1)


def test_a_recovery_lasts_from_the_loss_of_a_worker_to_the_next_claim() -> None:
    history = History(
        [
            entry(1.0, Phase.INVOKE, Verb.CLAIM, 1),
            entry(1.0, Phase.OK, Verb.CLAIM, 1),
            entry(1.0, Phase.INVOKE, Verb.ATTEMPT, 2),
            entry(2.0, Phase.INFO, Verb.ATTEMPT, 2),  # its worker is lost
            entry(2.2, Phase.INVOKE, Verb.CLAIM, 3, job="another"),
            entry(2.2, Phase.OK, Verb.CLAIM, 3, job="another"),
            entry(2.5, Phase.INVOKE, Verb.CLAIM, 4),
            entry(2.5, Phase.OK, Verb.CLAIM, 4),
            entry(2.5, Phase.INVOKE, Verb.ATTEMPT, 5),
            entry(9.0, Phase.OK, Verb.ATTEMPT, 5),
        ]
    )
    assert recoveries(history) == [0.5]


def test_a_worker_that_was_lost_after_its_commit_needs_no_recovery() -> None:
    history = History(
        [
            entry(1.0, Phase.INVOKE, Verb.CLAIM, 1),
            entry(1.0, Phase.OK, Verb.CLAIM, 1),
            entry(1.0, Phase.INVOKE, Verb.ATTEMPT, 2),
            entry(2.0, Phase.INFO, Verb.ATTEMPT, 2),
        ]
    )
    assert recoveries(history) == []


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.5, 5), (0.95, 10), (1.0, 10)])
def test_a_quantile_is_a_value_that_was_measured(share: float, expected: float) -> None:
    assert quantile([10, 9, 8, 7, 6, 5, 4, 3, 2, 1], share) == expected


def test_the_interval_of_a_rate_agrees_with_published_values() -> None:
    # Newcombe (1998), Statistics in Medicine 17, table I, method 3: 81 of 263 and 0 of 20.
    low, high = wilson_interval(81, 263)
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)
    low, high = wilson_interval(0, 20)
    assert (round(low, 4), round(high, 4)) == (0.0, 0.1611)


def test_no_hits_in_many_runs_still_have_an_interval_above_zero() -> None:
    low, high = wilson_interval(0, 1000)
    assert math.isclose(low, 0.0, abs_tol=1e-12)
    assert math.isclose(high, 0.00383, abs_tol=0.0001)
    assert wilson_interval(0, 0) == (0.0, 1.0)
    assert wilson_interval(1000, 1000)[1] == 1.0
