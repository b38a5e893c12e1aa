"""The fault plan is random, reproducible, and the same for both subjects."""

from __future__ import annotations

from faultline_drills.campaign import CampaignSettings
from faultline_drills.campaign.fault_plan import PLANS, FaultKind, count_by_kind, plan_jobs
from faultline_drills.workload.plan import ACTS, POINTS


def test_the_same_seed_gives_the_same_plan() -> None:
    assert plan_jobs(7, 300, 0.2) == plan_jobs(7, 300, 0.2)


def test_another_seed_gives_another_plan() -> None:
    assert plan_jobs(7, 300, 0.2) != plan_jobs(8, 300, 0.2)


def test_a_longer_campaign_begins_with_the_shorter_one() -> None:
    assert plan_jobs(7, 300, 0.2)[:100] == plan_jobs(7, 100, 0.2)


def test_a_higher_rate_hits_the_same_jobs_and_more() -> None:
    few = {job for job in plan_jobs(7, 500, 0.05) if job.fault}
    many = {job for job in plan_jobs(7, 500, 0.2) if job.fault}
    assert few < many


def test_the_rate_is_kept_and_every_kind_occurs() -> None:
    faults = count_by_kind(plan_jobs(7, 4000, 0.1))
    assert 300 < sum(faults.values()) < 500
    assert set(faults) == set(FaultKind)
    assert min(faults.values()) > 30


def test_the_default_campaign_has_every_kind() -> None:
    settings = CampaignSettings()
    faults = count_by_kind(plan_jobs(settings.seed, settings.jobs, settings.fault_rate))
    assert set(faults) == set(FaultKind)


def test_every_planned_action_exists() -> None:
    for plan in PLANS.values():
        for act in plan.values():
            what, _, where = act.partition("@")
            assert what in ACTS
            assert where in POINTS
