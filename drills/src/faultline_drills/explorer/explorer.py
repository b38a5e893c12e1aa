"""Explores programs: performs schedule after schedule, judges each, and stops at the first violation."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from faultline_drills.checker import Finding, Verdict, judge
from faultline_drills.explorer.minimise import minimise
from faultline_drills.explorer.play import FINISHER, Play
from faultline_drills.explorer.programs import PROGRAMS
from faultline_drills.explorer.rules import Evidence, findings_of
from faultline_drills.explorer.schedule import Follow, Performed, Vector
from faultline_drills.explorer.scheduler import Decide
from faultline_drills.explorer.search import AtRandom, Frontier
from faultline_drills.explorer.stage import Stage
from faultline_drills.history import History, Phase, Verb

_DUPLICATES_IN_A_ROW = 40
_SLICE = 10  # schedules of one program before it is the next one's turn


@dataclass(frozen=True, slots=True)
class Outcome:
    """One schedule, and what is wrong with it."""

    performed: Performed
    history: History
    findings: tuple[Finding, ...]
    counts: Counter[str]

    @property
    def broken_rules(self) -> set[str]:
        return {finding.rule for finding in self.findings}


@dataclass(frozen=True, slots=True)
class Counterexample:
    program: str
    vector: Vector
    seed: int
    found_after: int  # schedules of this program
    outcome: Outcome


@dataclass(slots=True)
class ProgramReport:
    name: str
    schedules: int = 0  # distinct ones
    performed: int = 0  # with those that had been seen before
    complete_bound: int = -1
    most_preemptions: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    counterexample: Counterexample | None = None


@dataclass(slots=True)
class ExploreReport:
    programs: list[ProgramReport] = field(default_factory=list)
    seed: int = 0
    server_version: str = ""

    @property
    def schedules(self) -> int:
        return sum(program.schedules for program in self.programs)

    @property
    def counts(self) -> Counter[str]:
        return sum((program.counts for program in self.programs), Counter())

    @property
    def counterexample(self) -> Counterexample | None:
        found = (program.counterexample for program in self.programs)
        return next((each for each in found if each is not None), None)

    @property
    def missing(self) -> list[str]:
        """What has to happen in a run that shows anything, and did not."""
        needed = ("takeovers", "stale_rejections", "commits", "lock_waits")
        return [f"no {name.replace('_', ' ')}" for name in needed if not self.counts[name]]

    @property
    def verdict(self) -> Verdict:
        if self.counterexample is not None:
            return Verdict.INVALID
        return Verdict.UNKNOWN if self.missing else Verdict.VALID


def explore(
    url: str,
    programs: Sequence[str] | None = None,
    *,
    max_preemptions: int = 2,
    max_schedules: int = 200,
    max_seconds: float | None = None,
    seed: int = 0,
    on_schedule: Callable[[ProgramReport], None] | None = None,
    tells_story: bool = True,
) -> ExploreReport:
    """In a scratch database that has the subject's schema. Schedules are counted per program, seconds
    are for all of them. It stops at the first violation, and looks for the shortest story of it.

    The programs take turns, so that a bug which one of them finds soon is found soon.
    """
    report = ExploreReport(seed=seed)
    deadline = None if max_seconds is None else time.monotonic() + max_seconds
    with Stage(url) as stage:
        report.server_version = stage.server_version
        runs = [
            _ProgramRun(
                stage, name, max_preemptions=max_preemptions, seed=seed, tells_story=tells_story
            )
            for name in programs or PROGRAMS
        ]
        report.programs = [run.report for run in runs]
        for limit in range(_SLICE, max_schedules + _SLICE, _SLICE):
            for run in runs:
                run.go_on(min(limit, max_schedules), deadline, on_schedule)
                if report.counterexample is not None or _is_past(deadline):
                    return report
            if all(run.is_exhausted for run in runs):
                break
    return report


def _is_past(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() > deadline


def perform(stage: Stage, program: str, decide: Decide, *, narrate: bool = False) -> Outcome:
    """One schedule from a clean slate to its judgement."""
    play = Play(stage)
    PROGRAMS[program](play)
    performed = play.perform(decide, narrate=narrate)
    play.finish(performed)
    world, movers = stage.world()
    judgement = judge(play.history, world)
    own = findings_of(Evidence(play.history, world, movers, performed, play.declared_dead))
    counts = play.counts
    counts["commits"] = len(world.ledger)
    counts["lock_waits"] = len(performed.waited)
    counts["takeovers"] = sum(
        claim.outcome is Phase.OK and claim.process != FINISHER and (claim.token or 0) > 1
        for claim in play.history.operations(Verb.CLAIM)
    )
    return Outcome(performed, play.history, (*judgement.findings, *own), counts)


class _ProgramRun:
    def __init__(
        self, stage: Stage, name: str, *, max_preemptions: int, seed: int, tells_story: bool
    ) -> None:
        self._stage = stage
        self._tells_story = tells_story
        self._seed = seed
        self._frontier = Frontier(max_preemptions=max_preemptions, seed=seed)
        self._seen: set[Vector] = set()
        self._duplicates_in_a_row = 0
        self.report = ProgramReport(name)

    @property
    def is_exhausted(self) -> bool:
        """There is hardly anything new to be found at random."""
        return self._duplicates_in_a_row > _DUPLICATES_IN_A_ROW

    def go_on(
        self,
        max_schedules: int,
        deadline: float | None,
        on_schedule: Callable[[ProgramReport], None] | None,
    ) -> None:
        """Until it has tried so many different schedules in all."""
        report, began = self.report, time.monotonic()
        while report.schedules < max_schedules and not self.is_exhausted:
            is_new = self._try_next(report.performed)
            self._duplicates_in_a_row = 0 if is_new else self._duplicates_in_a_row + 1
            if is_new and on_schedule is not None:
                on_schedule(report)
            if report.counterexample is not None or _is_past(deadline):
                break
        report.seconds += time.monotonic() - began
        report.complete_bound = self._frontier.complete_bound

    def _try_next(self, number: int) -> bool:
        """Whether the schedule was a new one."""
        prefix = self._frontier.next_prefix()
        decide = AtRandom(self._seed * 1_000_003 + number) if prefix is None else Follow(prefix)
        outcome = perform(self._stage, self.report.name, decide)
        self.report.performed += 1
        performed = outcome.performed
        if prefix is not None:
            self._frontier.add_alternatives(prefix, performed.decisions)
        if performed.vector in self._seen:
            return False
        self._seen.add(performed.vector)
        report = self.report
        report.schedules += 1
        report.counts += outcome.counts
        report.most_preemptions = max(report.most_preemptions, performed.preemptions)
        if outcome.findings:
            told = self._shortest(outcome) if self._tells_story else outcome
            report.counterexample = Counterexample(
                report.name, told.performed.vector, self._seed, report.schedules, told
            )
        return True

    def _shortest(self, found: Outcome) -> Outcome:
        """The violation in as few steps as can be, step by step."""

        def attempt(vector: Vector) -> Outcome:
            return perform(self._stage, self.report.name, Follow(vector), narrate=True)

        smallest = minimise(found, attempt)
        outcome = attempt(smallest.performed.vector)
        if outcome.broken_rules & found.broken_rules:
            return outcome
        return found  # it does not repeat itself, which is worth knowing too
