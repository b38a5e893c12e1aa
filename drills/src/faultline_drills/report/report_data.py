"""The contents of a report as plain data, for JSON, Markdown and HTML. Pure."""

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
    "Effects outside PostgreSQL (mails, API calls) happen at least once: a job that runs again calls"
    " again. Pass `job.effect_key` or `job.token` to systems that accept them.",
    "An asynchronous failover can lose acknowledged commits, those of Faultline included. Synchronous"
    " replication does not.",
    "The fence does not stop a Byzantine worker that forges another worker's token and lease id.",
    "A superuser, `session_replication_role = replica` and disabled triggers bypass all guards.",
)
# Files of other drills that become part of the report, by the beginning of their names.
OTHER_DRILLS = ("explore", "sweep", "soak")


def report_data(
    groups: Sequence[CampaignGroup],
    scenarios: Sequence[ScenarioRow] | None,
    race: Mapping[str, bool],
    origin: Provenance,
    other_reports: Mapping[str, Any],
) -> dict[str, Any]:
    """Collect all results; `scenarios` is None if none were run.

    `race` maps each claim about the race to whether it holds.
    """
    rows = scenarios or ()
    broken = [f"the race: {claim}: no" for claim, holds in race.items() if not holds]
    conclusion = conclude(
        groups,
        more_violations=broken + [each for row in rows for each in row.violations],
        more_missing=[each for row in rows for each in row.missing],
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
        "other_drills": dict(other_reports),
        "not_guaranteed": list(NOT_GUARANTEED),
        "campaigns": [each.facts() for group in groups for each in group.campaigns],
    }


def read_other_reports(folder: Path) -> dict[str, Any]:
    """The kill matrix and the summaries of long drills that are in `folder`."""
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.json")):
        if path.stem == "mutants" or path.stem.startswith(OTHER_DRILLS):
            try:
                facts = json.loads(path.read_text())
            except ValueError:
                continue  # incomplete: the drill is still running
            if isinstance(facts, dict):
                found[path.stem] = facts
    return found
