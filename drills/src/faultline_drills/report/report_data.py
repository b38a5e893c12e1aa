"""Everything that a report tells, as plain facts: the Markdown and the page are made from these. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from faultline_drills.campaign.campaign import time_facts
from faultline_drills.provenance import Provenance
from faultline_drills.report.campaign_groups import CampaignGroup, conclude
from faultline_drills.report.scenario_matrix import ScenarioRow
from faultline_drills.report.summary import SELF_FENCING_NOTE
from faultline_drills.subjects import Subject

NOT_GUARANTEED = (
    "Effects outside PostgreSQL (mails, API calls) are at-least-once: a job that is done again calls"
    " again. `job.idempotency_key` and `job.token` are there for systems that accept them.",
    "An asynchronous failover can lose commits that were acknowledged, ours like anybody's. Synchronous"
    " replication does not.",
    "A Byzantine worker, one that forges the token and lease of another, is not kept out by the fence.",
    "A superuser, `session_replication_role = replica` and disabled triggers go round everything.",
)
# What other drills leave beside the report, by the beginning of the file's name.
OTHER_DRILLS = ("explore", "sweep", "soak")


def report_data(
    groups: Sequence[CampaignGroup],
    scenarios: Sequence[ScenarioRow] | None,
    race: Mapping[str, bool],
    origin: Provenance,
    others: Mapping[str, Any],
) -> dict[str, Any]:
    """`scenarios` is None where they were left out; `race` is what holds after the stale-worker race."""
    rows = scenarios or ()
    broken = [f"the race: {claim}: no" for claim, holds in race.items() if not holds]
    conclusion = conclude(
        groups,
        also_wrong=broken + [each for row in rows for each in row.wrong],
        also_vacuous=[each for row in rows for each in row.vacuous],
    )
    ours = [group for group in groups if group.subject is Subject.FAULTLINE]
    return {
        **origin.facts(),
        "verdict": conclusion.verdict.value,
        "why_not": list(conclusion.reasons),
        "safe_for_controlled_release_validation": conclusion.is_safe,
        "self_fencing": SELF_FENCING_NOTE,
        "workers": groups[0].campaigns[0].settings.workers,
        "lease_seconds": groups[0].campaigns[0].settings.lease_seconds,
        "groups": [group.facts() for group in groups],
        "crash_recovery_seconds": time_facts([s for group in ours for s in group.crash_seconds]),
        "stale_takeover_seconds": time_facts([s for group in ours for s in group.takeover_seconds]),
        "race": dict(race),
        "scenarios": None if scenarios is None else [row.facts() for row in scenarios],
        "other_drills": dict(others),
        "not_guaranteed": list(NOT_GUARANTEED),
        "campaigns": [each.facts() for group in groups for each in group.campaigns],
    }


def read_other_reports(folder: Path) -> dict[str, Any]:
    """What other drills have written there: the kill matrix, and the summaries of long drills."""
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.json")):
        if path.stem == "mutants" or path.stem.startswith(OTHER_DRILLS):
            try:
                facts = json.loads(path.read_text())
            except ValueError:
                continue  # half written: the drill is still running
            if isinstance(facts, dict):
                found[path.stem] = facts
    return found
