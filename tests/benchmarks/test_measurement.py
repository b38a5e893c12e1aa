"""Arithmetic of the benchmarks: medians, ranges, ratios per repeat, and goals."""

from __future__ import annotations

import pytest

from benchmarks.goal import Goal
from benchmarks.measurement import measurement, number, paired_ratio
from benchmarks.tables import table


def test_a_measurement_is_the_median_and_the_range_of_all_repeats() -> None:
    found = measurement([110.0, 90.0, 100.0])
    assert (found.n, found.median, found.low, found.high) == (3, 100.0, 90.0, 110.0)
    assert found.spread == pytest.approx(0.2)


def test_a_ratio_is_computed_within_each_repeat_in_which_both_were_measured() -> None:
    """The machine is half as fast in the second repeat for both, so the ratio stays."""
    ours = {0: 200.0, 1: 100.0, 2: 210.0}
    theirs = {0: 100.0, 1: 50.0, 3: 1.0}
    found = paired_ratio(ours, theirs)
    assert found is not None
    assert (found.n, found.median, found.spread) == (2, 2.0, 0.0)


def test_without_a_common_repeat_there_is_no_ratio() -> None:
    assert paired_ratio({0: 1.0}, {1: 1.0}) is None
    assert paired_ratio({0: 1.0}, {0: 0.0}) is None


@pytest.mark.parametrize(
    ("bound", "at_least", "measured", "outcome"),
    [
        (2.0, True, 2.0, "reached"),
        (2.0, True, 1.5, "missed by 25%"),
        (1.0, False, 0.9, "reached"),
        (1.0, False, 1.1, "missed by 10%"),
    ],
)
def test_a_goal_says_by_how_much_it_was_missed(
    bound: float, at_least: bool, measured: float, outcome: str
) -> None:
    verdict = Goal("figure", "peer", bound, at_least=at_least).judge(measured)
    assert verdict.outcome == outcome
    assert verdict.reached == (outcome == "reached")


def test_a_goal_without_a_figure_is_neither_reached_nor_missed() -> None:
    verdict = Goal("figure", "peer", 1, unit="s").judge(None, "no Redis")
    assert verdict.reached is None
    assert verdict.outcome == "not measured: no Redis"
    assert verdict.wanted == "≥ 1 s"


def test_numbers_have_three_significant_digits() -> None:
    assert [number(value) for value in (12345.6, 99.96, 9.876, 0.5)] == [
        *("12,346", "100.0", "9.88", "0.50")
    ]


def test_a_cell_with_a_pipe_or_newline_does_not_break_its_table() -> None:
    assert table(["a"], [["x|y\nz"]]).splitlines()[-1] == r"| x\|y z |"
