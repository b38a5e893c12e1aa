"""Rules about the firings of an explored schedule. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

NAME = "explored"
MISSED = 3  # planned times that are due when a program begins


@dataclass(frozen=True, slots=True)
class ScheduleFacts:
    """What the database says about the one schedule when all actors have ended."""

    jobs_at: Mapping[str, int] = field(default_factory=dict)  # jobs for each planned time
    decided: int = 0  # planned times that have fired or were skipped, of those due at the beginning
    manual: int = 0
    is_changed: bool = False  # by an operator, so that times may have been left out
    is_due: bool = False
    has_own_time: bool = True  # whether its next time is one of its own timing
    disagreements: Sequence[str] = ()  # of schedules, firings and jobs

    @property
    def are_used(self) -> bool:
        return bool(self.jobs_at) or self.decided > 0 or self.is_changed or self.is_due


def broken_firings(facts: ScheduleFacts, manual: int) -> Iterator[str]:
    """Each planned time has one job, and the due ones are decided all together.

    An operator's change decides that times which have not fired never will.
    """
    if not facts.are_used:
        return
    for planned_at, jobs in facts.jobs_at.items():
        if jobs > 1:
            yield f"{jobs} jobs for the planned time {planned_at}"
    if facts.decided not in ((0, MISSED) if facts.is_changed else (MISSED,)):
        yield f"{facts.decided} of {MISSED} planned times have fired or were skipped"
    if facts.is_due:
        yield "the schedule is still due after a scheduler has looked"
    if not facts.has_own_time:
        yield "the next time of the schedule is not one of its own timing"
    if facts.manual != manual:
        yield f"{facts.manual} jobs of {manual} that an operator asked for"
    yield from facts.disagreements
