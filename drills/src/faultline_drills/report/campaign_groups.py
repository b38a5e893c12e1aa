"""Groups campaigns by fault rate and subject, and draws a conclusion. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from faultline_drills.campaign.campaign import (
    CampaignReport,
    find_missing_events,
    rate_facts,
    time_facts,
)
from faultline_drills.judging.checker import DrillVerdict
from faultline_drills.judging.measures import wilson_interval
from faultline_drills.subjects import Subject


@dataclass(frozen=True)
class CampaignGroup:
    """All campaigns of one subject at one fault rate."""

    subject: Subject
    fault_rate: float
    campaigns: tuple[CampaignReport, ...]

    @property
    def jobs(self) -> int:
        return sum(each.settings.jobs for each in self.campaigns)

    @property
    def duplicates(self) -> int:
        return sum(each.duplicates for each in self.campaigns)

    @property
    def interval(self) -> tuple[float, float]:
        return wilson_interval(self.duplicates, self.jobs)

    @property
    def violations(self) -> int:
        return sum(sum(each.violations.values()) for each in self.campaigns)

    @property
    def tally(self) -> Counter[str]:
        return _sum(each.tally for each in self.campaigns)

    @property
    def injected(self) -> Counter[str]:
        return _sum(
            {kind.value: count for kind, count in each.injected.items()} for each in self.campaigns
        )

    @property
    def crash_seconds(self) -> list[float]:
        return [seconds for each in self.campaigns for seconds in each.crash_seconds]

    @property
    def takeover_seconds(self) -> list[float]:
        return [seconds for each in self.campaigns for seconds in each.takeover_seconds]

    @property
    def missing_events(self) -> list[str]:
        """Required events that happened in none of these campaigns."""
        planned = sum((Counter(each.planned) for each in self.campaigns), Counter())
        injected = sum((Counter(each.injected) for each in self.campaigns), Counter())
        return find_missing_events(self.subject, planned, injected, self.tally)

    def facts(self) -> dict[str, Any]:
        return {
            "subject": self.subject.value,
            "fault_rate": self.fault_rate,
            "campaigns": len(self.campaigns),
            "seeds": [each.settings.seed for each in self.campaigns],
            "duplicates": self.duplicates,
            "duplicate_rate": rate_facts(self.duplicates, self.jobs),
            "invariant_violations": self.violations,
            "faults_injected": dict(self.injected),
            "tally": {name: count for name, count in self.tally.items() if count},
            "crash_recovery_seconds": time_facts(self.crash_seconds),
            "stale_takeover_seconds": time_facts(self.takeover_seconds),
        }


def group_campaigns(campaigns: Iterable[CampaignReport]) -> list[CampaignGroup]:
    """One group per fault rate and subject, in this order."""
    groups: dict[tuple[float, Subject], list[CampaignReport]] = {}
    for each in campaigns:
        groups.setdefault((each.settings.fault_rate, each.settings.subject), []).append(each)
    return [
        CampaignGroup(subject, rate, tuple(group))
        for (rate, subject), group in sorted(groups.items(), key=lambda item: item[0])
    ]


@dataclass(frozen=True)
class Conclusion:
    verdict: DrillVerdict
    reasons: tuple[str, ...]  # why the verdict is not `valid`

    @property
    def is_safe(self) -> bool:
        return self.verdict is DrillVerdict.VALID


def conclude(
    groups: Sequence[CampaignGroup],
    *,
    more_violations: Sequence[str] = (),
    more_missing: Sequence[str] = (),
) -> Conclusion:
    """The verdict on all campaigns, and on the other drills whose reasons are given.

    Any violation by Faultline makes it invalid. Without one, the run must have been able to show it:
    every planned kind of fault was injected, and the control, without its fence, duplicated jobs.
    """
    violations, missing = list(more_violations), list(more_missing)
    for group in groups:
        where = f"{group.subject.value} at {group.fault_rate:.0%} faults"
        missing += [f"{where}: {each}" for each in group.missing_events]
        if group.subject is Subject.FAULTLINE:
            if group.duplicates:
                violations.append(f"{where}: {group.duplicates} jobs took effect more than once")
            if group.violations:
                violations.append(f"{where}: {group.violations} violations of the checker's rules")
    subjects = {group.subject for group in groups}
    missing += [f"{each.value}: no campaign" for each in Subject if each not in subjects]
    control_duplicates = sum(group.duplicates for group in groups if group.subject is Subject.NAIVE)
    if not control_duplicates:
        missing.append("the control, without its fence, duplicated no job")
    if violations:
        return Conclusion(DrillVerdict.INVALID, tuple(violations + missing))
    return Conclusion(DrillVerdict.UNKNOWN if missing else DrillVerdict.VALID, tuple(missing))


def _sum(counts: Iterable[Any]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return total
