"""Faultline passes a campaign with real workers; the naive queue does not."""

from __future__ import annotations

import pytest

from faultline.errors import InvalidInput
from faultline_drills.campaign import CampaignReport, CampaignSettings, FaultKind, run_campaign
from faultline_drills.campaign.fault_plan import count_by_kind, plan_jobs
from faultline_drills.judging.checker import DrillVerdict
from faultline_drills.subjects import Subject
from tests.proof import Tally, until_shown

JOBS, FAULT_RATE = 16, 0.5
LEASE_SECONDS = 2.0  # so that a worker delayed by a busy machine is not taken for a stopped one
TIMEOUT_SECONDS = 300  # up to three campaigns of half a minute each on a busy machine
SEED = CampaignSettings().seed
FAULTS = count_by_kind(plan_jobs(SEED, JOBS, FAULT_RATE))


def campaign(subject: Subject, server_url: str) -> CampaignReport:
    settings = CampaignSettings(
        jobs=JOBS, fault_rate=FAULT_RATE, seed=SEED, subject=subject, lease_seconds=LEASE_SECONDS
    )
    return until_shown(lambda: run_campaign(settings, server_url))


@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_faultline_passes_a_campaign_with_every_kind_of_fault(
    server_url: str, tally: Tally
) -> None:
    report = campaign(Subject.FAULTLINE, server_url)
    tally("campaign job", scenarios=JOBS, **report.tally)
    assert report.judgement.verdict is DrillVerdict.VALID, report.judgement.findings
    assert report.duplicates == 0
    assert report.injected == FAULTS
    assert set(FAULTS) == set(FaultKind)
    assert report.tally["stale_rejections"] == report.tally["stops"] > 0

    # the recovery from every kill and stall was timed
    redone = FAULTS[FaultKind.CRASH] + FAULTS[FaultKind.PARTIAL_WRITE]
    assert len(report.crash_seconds) == redone
    assert len(report.takeover_seconds) == report.tally["stops"]
    assert min(report.crash_seconds + report.takeover_seconds) >= 0


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_the_naive_queue_duplicates_jobs_under_the_same_faults(
    server_url: str, tally: Tally
) -> None:
    report = campaign(Subject.NAIVE, server_url)
    tally("campaign on the control", scenarios=JOBS)
    assert report.judgement.verdict is DrillVerdict.INVALID
    assert report.injected == FAULTS
    assert (
        report.duplicates == FAULTS[FaultKind.STALE_TAKEOVER] + FAULTS[FaultKind.TIMEOUT_BURST] > 0
    )


def test_a_campaign_with_too_few_workers_is_rejected() -> None:
    with pytest.raises(InvalidInput, match="workers or more"):
        CampaignSettings(workers=3)
