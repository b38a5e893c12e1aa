"""Campaigns side by side: the same fault rate and subject pooled, and what all of them say. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from faultline_drills.campaign.campaign import CampaignReport, rate_facts, shortfalls, time_facts
from faultline_drills.checker import Verdict
from faultline_drills.measures import wilson_interval
from faultline_drills.subjects import Subject


@dataclass(frozen=True)
class Cell:
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


def pooled(campaigns: Iterable[CampaignReport]) -> list[Cell]:
    """By fault rate, then subject."""
    groups: dict[tuple[float, Subject], list[CampaignReport]] = {}
    for each in campaigns:
        groups.setdefault((each.settings.fault_rate, each.settings.subject), []).append(each)
    return [
        Cell(subject, rate, tuple(group))
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
    cells: Sequence[Cell], *, also_wrong: Sequence[str] = (), also_vacuous: Sequence[str] = ()
) -> Conclusion:
    """Whether the campaigns, and what else was run, show what they are meant to show.

    Anything wrong with Faultline outweighs everything. Where nothing is wrong, it must have been
    possible to see it: the faults struck, and the control, without its fence, was found out.
    """
    wrong, vacuous = list(also_wrong), list(also_vacuous)
    for cell in cells:
        where = f"{cell.subject.value} at {cell.fault_rate:.0%} faults"
        vacuous += [f"{where}: {each}" for each in cell.nothing_shown]
        if cell.subject is Subject.FAULTLINE:
            if cell.duplicates:
                wrong.append(f"{where}: {cell.duplicates} jobs took effect more than once")
            if cell.violations:
                wrong.append(f"{where}: {cell.violations} violations of the checker's rules")
    subjects = {cell.subject for cell in cells}
    vacuous += [f"{each.value}: no campaign" for each in Subject if each not in subjects]
    found_out = sum(cell.duplicates for cell in cells if cell.subject is Subject.NAIVE)
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
