"""A judgement: what makes it valid, invalid, or a run that has shown nothing."""

from __future__ import annotations

import pytest

from faultline_drills.checker import Verdict, judge
from faultline_drills.history import History, Phase
from faultline_drills.rules import RULES
from faultline_drills.world import World
from tests.unit.drills.told import Told


def test_a_drill_in_which_all_is_right_is_valid_and_every_rule_looked_at_something(
    told: Told,
) -> None:
    judgement = judge(told.history, told.world)
    assert judgement.verdict is Verdict.VALID, judgement.findings
    assert judgement.holds
    assert set(judgement.examined) == set(RULES)
    assert all(judgement.examined.values()), judgement.examined


def test_a_drill_that_did_not_bring_about_its_fault_shows_nothing(told: Told) -> None:
    judgement = judge(told.history, told.world, missing=["kills: none"])
    assert judgement.verdict is Verdict.UNKNOWN
    assert not judgement.holds
    assert [finding.evidence for finding in judgement.findings] == ["kills: none"]


@pytest.mark.parametrize(
    ("shown", "rule"),
    [
        ("commits", "reported_commits_are_in_the_ledger"),
        ("takeovers", "tokens_are_given_once"),
        ("stale_rejections", "failed_attempts_left_nothing"),
        ("outside_refusals", "the_outside_never_steps_back"),
    ],
)
def test_a_drill_whose_fault_gave_a_rule_nothing_to_look_at_shows_nothing(
    shown: str, rule: str
) -> None:
    judgement = judge(History(), World(), shows=["kills", shown])
    assert judgement.verdict is Verdict.UNKNOWN
    assert f"{rule} had nothing to look at" in {each.evidence for each in judgement.findings}


def test_a_drill_whose_rules_all_had_something_to_look_at_is_valid(told: Told) -> None:
    shows = ("commits", "takeovers", "stale_rejections", "retries", "outside_refusals")
    assert judge(told.history, told.world, shows=shows).holds


def test_a_violation_counts_even_when_the_fault_did_not_come_about(told: Told) -> None:
    told.rows(ledger=[])
    judgement = judge(told.history, told.world, missing=["kills: none"])
    assert judgement.verdict is Verdict.INVALID


def test_a_promise_of_the_story_that_was_not_kept_makes_a_drill_invalid(told: Told) -> None:
    judgement = judge(told.history, told.world, unmet=["one of fifty made the job"])
    assert judgement.verdict is Verdict.INVALID
    assert {finding.rule for finding in judgement.findings} == {"the_story"}


def test_a_drill_in_which_nothing_happened_examined_nothing() -> None:
    judgement = judge(History(), World())
    assert set(judgement.examined.values()) == {0}


def test_evidence_is_limited_however_much_is_wrong() -> None:
    told = Told()
    for number in range(1000):
        told.submit(Phase.OK, job=f"ghost-{number}")
    assert len(judge(told.history, told.world).findings) < 100
