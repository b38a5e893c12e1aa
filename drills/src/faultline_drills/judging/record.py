"""What the rules read: history, database state, and indexes over both."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property

from faultline_drills.recording.database_state import (
    DatabaseState,
    EffectFact,
    JobFact,
    Transition,
)
from faultline_drills.recording.history import History, Operation, Phase, Verb


@dataclass(frozen=True)
class DrillRecord:
    history: History
    state: DatabaseState

    @cached_property
    def attempts(self) -> list[Operation]:
        return self.history.operations(Verb.ATTEMPT)

    @cached_property
    def submits(self) -> list[Operation]:
        return self.history.operations(Verb.SUBMIT)

    @cached_property
    def claims(self) -> list[Operation]:
        return [each for each in self.history.operations(Verb.CLAIM) if each.outcome is Phase.OK]

    @cached_property
    def retries(self) -> Counter[str | None]:
        """Per job: how often an operator's retry may have queued it again."""
        return Counter(
            each.job
            for each in self.history.operations(Verb.RETRY)
            if each.outcome is not Phase.FAIL and each.detail.get("state", "queued") == "queued"
        )

    @cached_property
    def jobs(self) -> dict[str, JobFact]:
        return {job.id: job for job in self.state.jobs}

    @cached_property
    def ledger(self) -> set[tuple[str, int]]:
        return {(entry.job, entry.token) for entry in self.state.ledger}

    @cached_property
    def lost_jobs(self) -> set[str]:
        return {job for lost in self.state.lost_states for job in lost.jobs}

    @cached_property
    def lost_commits(self) -> set[tuple[str, int]]:
        return {commit for lost in self.state.lost_states for commit in lost.commits}

    @cached_property
    def effects(self) -> list[EffectFact]:
        return [effect for effect in self.state.effects if not effect.is_step]

    @cached_property
    def effects_of(self) -> dict[tuple[str, int], list[EffectFact]]:
        """By job and token."""
        found: dict[tuple[str, int], list[EffectFact]] = defaultdict(list)
        for effect in self.effects:
            found[effect.job, effect.token].append(effect)
        return found

    @cached_property
    def transitions_of(self) -> dict[str, list[Transition]]:
        """Per job, oldest first."""
        found: dict[str, list[Transition]] = defaultdict(list)
        for each in sorted(self.state.transitions, key=lambda each: each.order):
            found[each.job].append(each)
        return found
