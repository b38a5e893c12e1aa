"""Campaigns are concluded to be safe only if they could have shown the opposite."""

from __future__ import annotations

from typing import Any

import pytest

from faultline_drills.campaign import FaultKind
from faultline_drills.judging.checker import DrillFinding, DrillVerdict, Judgement
from faultline_drills.report.campaign_groups import conclude, group_campaigns
from faultline_drills.report.summary import summarise
from faultline_drills.subjects import Subject
from tests.unit.drills.report.reports import ORIGIN, TALLY, both, report

SEED_KEYS = {
    "fault_rate",
    "faultline_duplicates",
    "naive_duplicates",
    "invariant_violations",
    "stale_writes_prevented",
    "safe_for_controlled_release_validation",
}


def summary(**changed: dict[str, Any]) -> dict[str, Any]:
    groups = both(**changed)
    return summarise(groups, conclude(groups), ORIGIN)


def test_a_good_run_is_summarised_in_a_few_numbers() -> None:
    facts = summary()
    assert facts.keys() >= SEED_KEYS
    assert {key: facts[key] for key in SEED_KEYS} == {
        "fault_rate": 0.1,
        "faultline_duplicates": 0,
        "naive_duplicates": 3,
        "invariant_violations": 0,
        "stale_writes_prevented": 3,
        "safe_for_controlled_release_validation": True,
    }
    assert facts["verdict"] == "valid"
    assert facts["commit"] == "abc123"
    assert facts["duplicate_rate"]["naive"]["n"] == 100


@pytest.mark.parametrize("name", ["commits", "kills", "stops", "takeovers", "stale_rejections"])
def test_it_is_not_called_safe_when_a_required_event_did_not_happen(name: str) -> None:
    facts = summary(ours={"tally": TALLY | {name: 0}})
    assert facts["safe_for_controlled_release_validation"] is False
    assert facts["verdict"] == "unknown"
    assert any(name in reason for reason in facts["why_not"])


def test_it_is_not_called_safe_when_a_planned_fault_was_never_injected() -> None:
    facts = summary(ours={"injected": {FaultKind.CRASH: 2}})
    assert facts["verdict"] == "unknown"
    assert "stale_lease_takeover: 3 planned, none injected" in facts["why_not"][0]


def test_it_is_not_called_safe_when_the_control_duplicated_no_job() -> None:
    facts = summary(control={"duplicates": 0, "judgement": Judgement(DrillVerdict.VALID, ())})
    assert facts["verdict"] == "unknown"
    assert facts["safe_for_controlled_release_validation"] is False


def test_one_duplicate_makes_it_invalid() -> None:
    facts = summary(ours={"duplicates": 1, "tally": TALLY | {"kills": 0}})
    assert facts["verdict"] == "invalid"
    assert "1 jobs took effect more than once" in facts["why_not"][0]


def test_a_broken_rule_makes_it_invalid() -> None:
    found = Judgement(
        DrillVerdict.INVALID, (DrillFinding("every_job_ends", "job j is still running"),)
    )
    facts = summary(ours={"judgement": found})
    assert facts["verdict"] == "invalid"
    assert facts["invariant_violations"] == 1


def test_without_a_control_the_verdict_is_unknown() -> None:
    conclusion = conclude(group_campaigns([report(Subject.FAULTLINE)]))
    assert conclusion.verdict is DrillVerdict.UNKNOWN


def test_campaigns_of_one_rate_and_queue_are_grouped() -> None:
    groups = group_campaigns(
        [report(Subject.NAIVE), report(Subject.NAIVE), report(Subject.FAULTLINE)]
    )
    ours, control = groups
    assert (ours.subject, ours.jobs, ours.duplicates) == (Subject.FAULTLINE, 100, 0)
    assert (control.subject, control.jobs, control.duplicates) == (Subject.NAIVE, 200, 6)
    assert control.interval[0] < 6 / 200 < control.interval[1]


def test_a_campaign_may_lack_an_event_that_another_of_its_group_has() -> None:
    idle = report(Subject.FAULTLINE, tally=TALLY | {"kills": 0})
    groups = group_campaigns([idle, report(Subject.FAULTLINE), report(Subject.NAIVE)])
    assert conclude(groups).is_safe
