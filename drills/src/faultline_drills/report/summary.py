"""The summary of campaigns as a few numbers (benchmark_summary.json). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from faultline_drills.campaign.campaign import rate_facts, time_facts
from faultline_drills.provenance import Provenance
from faultline_drills.report.campaign_groups import CampaignGroup, Conclusion
from faultline_drills.subjects import Subject

SELF_FENCING_NOTE = "off in both subjects, so that only the fence in the database is compared"


def summarise(
    groups: Sequence[CampaignGroup], conclusion: Conclusion, origin: Provenance
) -> dict[str, Any]:
    """Summarise campaigns of both subjects at one fault rate."""
    ours = [group for group in groups if group.subject is Subject.FAULTLINE]
    control = [group for group in groups if group.subject is Subject.NAIVE]
    campaigns = [campaign for group in groups for campaign in group.campaigns]
    return {
        "fault_rate": groups[0].fault_rate,
        "faultline_duplicates": sum(group.duplicates for group in ours),
        "naive_duplicates": sum(group.duplicates for group in control),
        "invariant_violations": sum(group.violations for group in ours),
        "stale_writes_prevented": sum(group.tally["stale_rejections"] for group in ours),
        "safe_for_controlled_release_validation": conclusion.is_safe,
        "verdict": conclusion.verdict.value,
        "why_not": list(conclusion.reasons),
        "jobs_per_subject": sum(group.jobs for group in ours),
        "workers": campaigns[0].settings.workers,
        "lease_seconds": campaigns[0].settings.lease_seconds,
        "self_fencing": SELF_FENCING_NOTE,
        "duplicate_rate": {
            group.subject.value: rate_facts(group.duplicates, group.jobs) for group in groups
        },
        "faults_injected": {group.subject.value: dict(group.injected) for group in groups},
        "takeovers": {group.subject.value: group.tally["takeovers"] for group in groups},
        "crash_recovery_seconds": time_facts([s for group in ours for s in group.crash_seconds]),
        "stale_takeover_seconds": time_facts([s for group in ours for s in group.takeover_seconds]),
        **origin.facts(),
        "campaigns": [campaign.facts() for campaign in campaigns],
    }
