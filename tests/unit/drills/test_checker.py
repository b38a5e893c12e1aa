"""When a verdict is valid, invalid or unknown."""

from __future__ import annotations

import pytest

from faultline_drills.judging.checker import DrillVerdict, judge
from faultline_drills.judging.rules import RULES
from faultline_drills.recording.database_state import DatabaseState
from faultline_drills.recording.history import History, Phase
from tests.unit.drills.recorded import RecordedDrill


def test_a_correct_drill_is_valid_and_every_rule_examined_something(
    recorded: RecordedDrill,
) -> None:
    judgement = judge(recorded.history, recorded.state)
    assert judgement.verdict is DrillVerdict.VALID, judgement.findings
    assert judgement.holds
    assert set(judgement.examined) == set(RULES)
    assert all(judgement.examined.values()), judgement.examined


def test_a_drill_without_its_fault_is_unknown(recorded: RecordedDrill) -> None:
    judgement = judge(recorded.history, recorded.state, missing=["kills: none"])
    assert judgement.verdict is DrillVerdict.UNKNOWN
    assert not judgement.holds
    assert [finding.evidence for finding in judgement.findings] == ["kills: none"]


@pytest.mark.parametrize(
    ("shown", "rule"),
    [
        ("commits", "reported_commits_are_in_the_ledger"),
        ("takeovers", "tokens_are_issued_once"),
        ("stale_rejections", "failed_attempts_left_nothing"),
        ("external_refusals", "external_tokens_never_decrease"),
    ],
)
def test_a_drill_whose_fault_gave_a_rule_nothing_to_examine_is_unknown(
    shown: str, rule: str
) -> None:
    judgement = judge(History(), DatabaseState(), shows=["kills", shown])
    assert judgement.verdict is DrillVerdict.UNKNOWN
    assert f"{rule} had nothing to examine" in {each.evidence for each in judgement.findings}


def test_a_drill_whose_rules_all_examined_something_is_valid(recorded: RecordedDrill) -> None:
    shows = ("commits", "takeovers", "stale_rejections", "retries", "external_refusals")
    assert judge(recorded.history, recorded.state, shows=shows).holds


def test_a_violation_counts_even_without_the_fault(recorded: RecordedDrill) -> None:
    recorded.rows(ledger=[])
    judgement = judge(recorded.history, recorded.state, missing=["kills: none"])
    assert judgement.verdict is DrillVerdict.INVALID


def test_a_broken_expectation_of_the_scenario_makes_a_drill_invalid(
    recorded: RecordedDrill,
) -> None:
    judgement = judge(recorded.history, recorded.state, broken=["one of fifty made the job"])
    assert judgement.verdict is DrillVerdict.INVALID
    assert {finding.rule for finding in judgement.findings} == {"scenario_expectation"}


def test_a_drill_in_which_nothing_happened_examined_nothing() -> None:
    judgement = judge(History(), DatabaseState())
    assert set(judgement.examined.values()) == {0}


def test_evidence_is_limited_however_much_is_wrong() -> None:
    recorded = RecordedDrill()
    for number in range(1000):
        recorded.submit(Phase.OK, job=f"ghost-{number}")
    assert len(judge(recorded.history, recorded.state).findings) < 100
