"""Campaign reports made by hand, for tests of conclusions and files."""

from __future__ import annotations

from collections import Counter
from typing import Any

from faultline_drills.campaign import CampaignReport, CampaignSettings, FaultKind
from faultline_drills.judging.checker import DrillFinding, DrillVerdict, Judgement
from faultline_drills.provenance import Provenance
from faultline_drills.report.campaign_groups import CampaignGroup, group_campaigns
from faultline_drills.subjects import Subject

ORIGIN = Provenance(
    command="faultline drill report",
    commit="abc123",
    seed=7,
    machine="Linux x86_64",
    cores=2,
    postgres="18.4",
    python="3.11.7",
    faultline="0.1.0",
    made_at="2026-01-01 00:00 UTC",
)
FAULTS = Counter({FaultKind.CRASH: 2, FaultKind.STALE_TAKEOVER: 3})
TALLY = {"commits": 100, "kills": 2, "stops": 3, "takeovers": 5, "stale_rejections": 3}


def report(subject: Subject, **changed: Any) -> CampaignReport:
    """A good campaign: no violation on Faultline, three duplicates without the fence."""
    is_ours = subject is Subject.FAULTLINE
    finding = DrillFinding("at_most_one_effect", "job j took effect 2 times")
    settings = CampaignSettings(
        jobs=100, subject=subject, fault_rate=changed.pop("fault_rate", 0.1)
    )
    given: dict[str, Any] = {
        "settings": settings,
        "postgres": "18.4",
        "planned": FAULTS,
        "injected": FAULTS,
        "duplicates": 0 if is_ours else 3,
        "judgement": Judgement(DrillVerdict.VALID, ())
        if is_ours
        else Judgement(DrillVerdict.INVALID, (finding,)),
        "tally": TALLY,
        "crash_seconds": (0.1, 0.3),
        "takeover_seconds": (0.02, 0.05, 0.04),
        "seconds": 9.0,
    }
    return CampaignReport(**given | changed)


def both(
    *, ours: dict[str, Any] | None = None, control: dict[str, Any] | None = None
) -> list[CampaignGroup]:
    return group_campaigns(
        [report(Subject.FAULTLINE, **(ours or {})), report(Subject.NAIVE, **(control or {}))]
    )
