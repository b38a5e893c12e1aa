"""Failover drills can fail: lost acknowledged work is found, and not excused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from faultline_drills.cluster import BackgroundLoad, Cluster, missing_requirement
from faultline_drills.context import DrillContext
from faultline_drills.drill import DrillReport, run_drill
from faultline_drills.judging.checker import DrillVerdict
from faultline_drills.scenario import DrillSettings, RunScenario, find_scenario
from tests.proof import until_shown

pytestmark = [
    pytest.mark.skipif(missing_requirement() is not None, reason=missing_requirement() or ""),
    pytest.mark.timeout(300),
]


def run_changed(name: str, change: RunScenario) -> DrillReport:
    scenario = replace(find_scenario(name), run=change)
    return until_shown(lambda: run_drill(scenario, DrillSettings(jobs=6)))


def broken_rules(report: DrillReport) -> set[str]:
    assert report.judgement.verdict is DrillVerdict.INVALID
    return {finding.rule for finding in report.judgement.findings}


@pytest.mark.slow
def test_promoting_the_lagging_standby_loses_acknowledged_commits() -> None:
    def promote_the_wrong_one(drill: DrillContext) -> None:
        cluster = Cluster(drill, standbys=2)
        behind = cluster.standbys[0]
        cluster.acknowledge_after(cluster.standbys)
        load = BackgroundLoad(drill)
        load.wait_for_commits(1, "that both standbys have")
        behind.follow(None)
        load.wait_for_commits(drill.settings.jobs, "that one of them has")
        cluster.lose_primary()
        cluster.promote(behind)
        load.end()

    rules = broken_rules(run_changed("second_failover", promote_the_wrong_one))
    assert {"no_acknowledged_submit_is_lost", "reported_commits_are_in_the_ledger"} <= rules


@pytest.mark.slow
def test_only_what_the_lost_server_alone_had_is_excused() -> None:
    scenario = find_scenario("asynchronous_failover")

    def forget_what_was_lost(drill: DrillContext) -> None:
        scenario.run(drill)
        found = drill.lost_states.pop()
        some = replace(found, jobs=frozenset(sorted(found.jobs)[1:]), commits=frozenset())
        drill.lost_states.append(some)

    rules = broken_rules(run_changed("asynchronous_failover", forget_what_was_lost))
    assert {"no_acknowledged_submit_is_lost", "reported_commits_are_in_the_ledger"} <= rules
    assert not rules & {"at_most_one_effect", "tokens_are_issued_once", "scenario_expectation"}
