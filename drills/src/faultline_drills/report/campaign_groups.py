"""Groups campaigns by fault rate and subject, and concludes from all of them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from faultline_drills.campaign.campaign import CampaignReport, rate_facts, shortfalls, time_facts
from faultline_drills.judging.checker import Verdict
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
            {kind.value: count for kind, count in each.struck.items()} for each in self.campaigns
        )

    @property
    def crash_seconds(self) -> list[float]:
        return [seconds for each in self.campaigns for seconds in each.crash_seconds]

    @property
    def takeover_seconds(self) -> list[float]:
        return [seconds for each in self.campaigns for seconds in each.takeover_seconds]

    @property
    def nothing_shown(self) -> list[str]:
        """What had to happen in one of these campaigns at least, and did not."""
        planned = sum((Counter(each.planned) for each in self.campaigns), Counter())
        struck = sum((Counter(each.struck) for each in self.campaigns), Counter())
        return shortfalls(self.subject, planned, struck, self.tally)

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
    """By fault rate, then subject."""
    groups: dict[tuple[float, Subject], list[CampaignReport]] = {}
    for each in campaigns:
        groups.setdefault((each.settings.fault_rate, each.settings.subject), []).append(each)
    return [
        CampaignGroup(subject, rate, tuple(group))
        for (rate, subject), group in sorted(groups.items(), key=lambda item: item[0])
    ]


@dataclass(frozen=True)
class Conclusion:
    verdict: Verdict
    reasons: tuple[str, ...]  # why it is not `valid`

    @property
    def is_safe(self) -> bool:
        return self.verdict is Verdict.VALID


def conclude(
    groups: Sequence[CampaignGroup],
    *,
    also_wrong: Sequence[str] = (),
    also_vacuous: Sequence[str] = (),
) -> Conclusion:
    """Whether the campaigns, and what else was run, show what they are meant to show.

    Anything wrong with Faultline outweighs everything. Where nothing is wrong, it must have been
    possible to see it: the faults struck, and the control, without its fence, was found out.
    """
    wrong, vacuous = list(also_wrong), list(also_vacuous)
    for group in groups:
        where = f"{group.subject.value} at {group.fault_rate:.0%} faults"
        vacuous += [f"{where}: {each}" for each in group.nothing_shown]
        if group.subject is Subject.FAULTLINE:
            if group.duplicates:
                wrong.append(f"{where}: {group.duplicates} jobs took effect more than once")
            if group.violations:
                wrong.append(f"{where}: {group.violations} violations of the checker's rules")
    subjects = {group.subject for group in groups}
    vacuous += [f"{each.value}: no campaign" for each in Subject if each not in subjects]
    found_out = sum(group.duplicates for group in groups if group.subject is Subject.NAIVE)
    if not found_out:
        vacuous.append("the control, without its fence, was not found out")
    if wrong:
        return Conclusion(Verdict.INVALID, tuple(wrong + vacuous))
    return Conclusion(Verdict.UNKNOWN if vacuous else Verdict.VALID, tuple(vacuous))


def _sum(counts: Iterable[Any]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return total
