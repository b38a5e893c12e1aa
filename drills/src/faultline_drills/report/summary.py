"""The benchmark's summary: a few numbers, computed from campaigns that were run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from faultline_drills.campaign.campaign import rate_facts, time_facts
from faultline_drills.provenance import Provenance
from faultline_drills.report.comparison import Cell, Conclusion
from faultline_drills.subjects import Subject

SELF_FENCING_NOTE = (
    "off in both subjects, so that nothing but the fence in the database is compared"
)


def summarise(cells: Sequence[Cell], conclusion: Conclusion, origin: Provenance) -> dict[str, Any]:
    """One fault rate, both subjects."""
    ours = [cell for cell in cells if cell.subject is Subject.FAULTLINE]
    control = [cell for cell in cells if cell.subject is Subject.NAIVE]
    campaigns = [campaign for cell in cells for campaign in cell.campaigns]
    return {
        "fault_rate": cells[0].fault_rate,
        "faultline_duplicates": sum(cell.duplicates for cell in ours),
        "naive_duplicates": sum(cell.duplicates for cell in control),
        "invariant_violations": sum(cell.violations for cell in ours),
        "stale_writes_prevented": sum(cell.tally["stale_rejections"] for cell in ours),
        "safe_for_controlled_release_validation": conclusion.is_safe,
        "verdict": conclusion.verdict.value,
        "why_not": list(conclusion.reasons),
        "jobs_per_subject": sum(cell.jobs for cell in ours),
        "workers": campaigns[0].settings.workers,
        "lease_seconds": campaigns[0].settings.lease_seconds,
        "self_fencing": SELF_FENCING_NOTE,
        "duplicate_rate": {
            cell.subject.value: rate_facts(cell.duplicates, cell.jobs) for cell in cells
        },
        "faults_injected": {cell.subject.value: dict(cell.injected) for cell in cells},
        "takeovers": {cell.subject.value: cell.tally["takeovers"] for cell in cells},
        "crash_recovery_seconds": time_facts([s for cell in ours for s in cell.crash_seconds]),
        "stale_takeover_seconds": time_facts([s for cell in ours for s in cell.takeover_seconds]),
        **origin.facts(),
        "campaigns": [campaign.facts() for campaign in campaigns],
    }
