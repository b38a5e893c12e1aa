"""What a drill is judged by: what was seen, what is there, and the indexes that the rules share. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property

from faultline_drills.history import History, Operation, Phase, Verb
from faultline_drills.world import EffectFact, JobFact, Transition, World


@dataclass(frozen=True)
class Case:
    history: History
    world: World

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
        """Per job: how often an operator may have put it back into the queue."""
        return Counter(
            each.job
            for each in self.history.operations(Verb.RETRY)
            if each.outcome is not Phase.FAIL and each.detail.get("state", "queued") == "queued"
        )

    @cached_property
    def jobs(self) -> dict[str, JobFact]:
        return {job.id: job for job in self.world.jobs}

    @cached_property
    def ledger(self) -> set[tuple[str, int]]:
        return {(entry.job, entry.token) for entry in self.world.ledger}

    @cached_property
    def abandoned_jobs(self) -> set[str]:
        return {job for server in self.world.abandoned for job in server.jobs}

    @cached_property
    def abandoned_commits(self) -> set[tuple[str, int]]:
        return {commit for server in self.world.abandoned for commit in server.commits}

    @cached_property
    def effects(self) -> list[EffectFact]:
        return [effect for effect in self.world.effects if not effect.is_step]

    @cached_property
    def effects_of(self) -> dict[tuple[str, int], list[EffectFact]]:
        found: dict[tuple[str, int], list[EffectFact]] = defaultdict(list)
        for effect in self.effects:
            found[effect.job, effect.token].append(effect)
        return found

    @cached_property
    def trail(self) -> dict[str, list[Transition]]:
        """Per job, oldest first."""
        found: dict[str, list[Transition]] = defaultdict(list)
        for step in sorted(self.world.trail, key=lambda step: step.order):
            found[step.job].append(step)
        return found
