"""Claims about which jobs are struck: pure chance, and the same for everybody."""

from __future__ import annotations

from faultline_drills.campaign import CampaignSettings
from faultline_drills.campaign.fault_plan import PLANS, FaultKind, count_by_kind, plan_jobs
from faultline_drills.workload.plan import ACTS, POINTS


def test_the_same_seed_strikes_the_same_jobs_in_the_same_way() -> None:
    assert plan_jobs(7, 300, 0.2) == plan_jobs(7, 300, 0.2)


def test_another_seed_strikes_others() -> None:
    assert plan_jobs(7, 300, 0.2) != plan_jobs(8, 300, 0.2)


def test_a_longer_campaign_begins_with_the_shorter_one() -> None:
    assert plan_jobs(7, 300, 0.2)[:100] == plan_jobs(7, 100, 0.2)


def test_a_higher_rate_strikes_the_same_jobs_and_more() -> None:
    """So that rates differ in nothing but how many are struck."""
    few = {job for job in plan_jobs(7, 500, 0.05) if job.fault}
    many = {job for job in plan_jobs(7, 500, 0.2) if job.fault}
    assert few < many


def test_about_as_many_are_struck_as_the_rate_says_and_no_kind_is_left_out() -> None:
    struck = count_by_kind(plan_jobs(7, 4000, 0.1))
    assert 300 < sum(struck.values()) < 500
    assert set(struck) == set(FaultKind)
    assert min(struck.values()) > 30


def test_the_default_campaign_strikes_with_every_kind() -> None:
    settings = CampaignSettings()
    struck = count_by_kind(plan_jobs(settings.seed, settings.jobs, settings.fault_rate))
    assert set(struck) == set(FaultKind)


def test_every_plan_says_something_that_a_job_can_do() -> None:
    for plan in PLANS.values():
        for act in plan.values():
            what, _, where = act.partition("@")
            assert what in ACTS
            assert where in POINTS
