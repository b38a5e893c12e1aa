"""The rules about schedules find times that fired twice, late, or not at all."""

from __future__ import annotations

import pytest

from faultline_drills.explorer.schedule_rules import MISSED, ScheduleFacts, broken_firings

ONCE = {"t1": 1, "t2": 1, "t3": 1}


@pytest.mark.parametrize(
    "facts",
    [
        ScheduleFacts(),  # no schedule
        ScheduleFacts(ONCE, MISSED),
        ScheduleFacts({"t3": 1}, MISSED),  # the others were skipped
        ScheduleFacts({}, 0, is_changed=True),  # before any of them fired
    ],
)
def test_each_time_fired_once_or_was_decided_not_to(facts: ScheduleFacts) -> None:
    assert list(broken_firings(facts, 0)) == []


@pytest.mark.parametrize(
    ("facts", "what"),
    [
        (ScheduleFacts({**ONCE, "t2": 2}, MISSED), "2 jobs for the planned time t2"),
        (ScheduleFacts({"t1": 1}, 1), "1 of 3 planned times have fired"),
        (ScheduleFacts({"t1": 1}, 1, is_changed=True), "1 of 3 planned times have fired"),
        (ScheduleFacts(ONCE, MISSED, is_due=True), "still due"),
        (ScheduleFacts(ONCE, MISSED, has_own_time=False), "not one of its own timing"),
        (ScheduleFacts(ONCE, MISSED, manual=1), "1 jobs of 0 that an operator asked for"),
        (ScheduleFacts(ONCE, MISSED, disagreements=("no job",)), "no job"),
    ],
)
def test_everything_else_is_found(facts: ScheduleFacts, what: str) -> None:
    (found,) = broken_firings(facts, 0)
    assert what in found
