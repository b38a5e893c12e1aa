"""Every scenario finds Faultline valid, and the control invalid where it must."""

from __future__ import annotations

import pytest

from faultline_drills.drill import DrillReport, run_drill
from faultline_drills.judging.checker import DrillVerdict
from faultline_drills.scenario import DrillSettings, all_scenarios
from faultline_drills.subjects import Subject
from tests.proof import TRIES, Tally, until_shown
from tests.slow import slow_unless

SCENARIOS = all_scenarios()
# These call the verbs directly, so that the control breaks the scenario's expectations and not always a rule.
JUDGED_BY_EXPECTATION = (
    "mismatched_token_or_lease",
    "one_guard_disabled",
    "commit_at_lease_expiry",
    "stale_failure_report",
    "schedule_firing",
    "schedule_downtime",
    "concurrency_limit",
    "rate_limit",
)
# The six failures of the campaign, the fence, and one scenario each of failovers, partitions, schedules
# and slots. The others are slow tests.
REPRESENTATIVES = (
    *("worker_crash", "stale_takeover", "retry_storm", "timeout_burst", "duplicate_submission"),
    *("partial_write", "mismatched_token_or_lease", "one_guard_disabled", "commit_at_lease_expiry"),
    *("lease_expiry_burst", "lost_commit_acknowledgement", "partition_blackhole"),
    *("synchronous_failover", "schedule_downtime", "queue_slots"),
)
CONTROLLED = ("stale_takeover", "mismatched_token_or_lease")
TRIES_SECONDS = 300  # a drill may time out after a minute, three times
CONTROLS = [name for name, each in SCENARIOS.items() if each.breaks_naive]


def run(name: str, subject: Subject, server_url: str) -> DrillReport:
    scenario = SCENARIOS[name]
    if missing := scenario.missing_requirement():
        pytest.skip(missing)
    settings = DrillSettings(subject=subject, jobs=6)
    return until_shown(lambda: run_drill(scenario, settings, server_url=server_url))


@pytest.mark.timeout(TRIES_SECONDS)
@pytest.mark.parametrize("name", slow_unless(SCENARIOS, *REPRESENTATIVES))
def test_a_drill_finds_nothing_wrong_with_faultline(
    name: str, server_url: str, tally: Tally
) -> None:
    report = run(name, Subject.FAULTLINE, server_url)
    tally("drill", scenarios=1, **report.tally)
    assert report.judgement.verdict is DrillVerdict.VALID, report.judgement.findings


@pytest.mark.timeout(TRIES_SECONDS)
@pytest.mark.parametrize("name", slow_unless(CONTROLS, *CONTROLLED))
def test_the_same_drill_finds_the_queue_without_a_fence_invalid(
    name: str, server_url: str, tally: Tally
) -> None:
    for _ in range(TRIES):  # a late commit breaks a rule by chance
        report = run(name, Subject.NAIVE, server_url)
        rules = {finding.rule for finding in report.judgement.findings}
        if rules != {"scenario_expectation"} or name in JUDGED_BY_EXPECTATION:
            break
    tally("drill on the control", scenarios=1)
    assert report.judgement.verdict is DrillVerdict.INVALID
    assert rules != {"scenario_expectation"} or name in JUDGED_BY_EXPECTATION, rules
