"""Runs and judges interleavings of programs until the first violation."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from faultline_drills.explorer.execution_rules import Evidence, findings_of
from faultline_drills.explorer.explorer_database import ExplorerDatabase
from faultline_drills.explorer.interleaving import ExecutionRecord, FollowInterleaving, Interleaving
from faultline_drills.explorer.program_execution import FINISHER, ProgramExecution
from faultline_drills.explorer.programs import PROGRAMS
from faultline_drills.explorer.scheduler import Decide
from faultline_drills.explorer.search import Frontier, RandomInterleaving
from faultline_drills.explorer.shrinking import shrink
from faultline_drills.judging.checker import DrillFinding, DrillVerdict, judge
from faultline_drills.recording.history import History, Phase, Verb

_DUPLICATES_IN_A_ROW = 40
_SLICE = 10  # interleavings of one program before the next program's turn


@dataclass(frozen=True, slots=True)
class JudgedExecution:
    """One executed interleaving, with the rules that it broke."""

    record: ExecutionRecord
    history: History
    findings: tuple[DrillFinding, ...]
    counts: Counter[str]

    @property
    def broken_rules(self) -> set[str]:
        return {finding.rule for finding in self.findings}


@dataclass(frozen=True, slots=True)
class Counterexample:
    program: str
    interleaving: Interleaving
    seed: int
    found_after: int  # interleavings of this program
    execution: JudgedExecution


@dataclass(slots=True)
class ProgramReport:
    name: str
    interleavings: int = 0  # distinct ones
    executed: int = 0  # including repetitions
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
    def interleavings(self) -> int:
        return sum(program.interleavings for program in self.programs)

    @property
    def counts(self) -> Counter[str]:
        return sum((program.counts for program in self.programs), Counter())

    @property
    def counterexample(self) -> Counterexample | None:
        found = (program.counterexample for program in self.programs)
        return next((each for each in found if each is not None), None)

    @property
    def missing(self) -> list[str]:
        """Events that a meaningful run must contain and this one lacks."""
        needed = ("takeovers", "stale_rejections", "commits", "lock_waits")
        return [f"no {name.replace('_', ' ')}" for name in needed if not self.counts[name]]

    @property
    def verdict(self) -> DrillVerdict:
        if self.counterexample is not None:
            return DrillVerdict.INVALID
        return DrillVerdict.UNKNOWN if self.missing else DrillVerdict.VALID


def explore(
    url: str,
    programs: Sequence[str] | None = None,
    *,
    max_preemptions: int = 2,
    max_interleavings: int = 200,
    max_seconds: float | None = None,
    seed: int = 0,
    on_interleaving: Callable[[ProgramReport], None] | None = None,
    shrinks: bool = True,
    only_complete: bool = False,
) -> ExploreReport:
    """Execute interleavings until a rule is broken or the budget is spent.

    `url` is a scratch database with the subject's schema. `max_interleavings` is per program,
    `max_seconds` for all of them. With `shrinks`, a violation is reduced to fewer steps. The programs
    take turns, so that a bug that one of them reveals quickly is found quickly. With `only_complete` a
    program ends when it is complete up to `max_preemptions`, without random interleavings.
    """
    report = ExploreReport(seed=seed)
    deadline = None if max_seconds is None else time.monotonic() + max_seconds
    with ExplorerDatabase(url) as database:
        report.server_version = database.server_version
        searches = [
            ProgramSearch(
                *(database, name),
                max_preemptions=max_preemptions,
                seed=seed,
                shrinks=shrinks,
                only_complete=only_complete,
            )
            for name in programs or PROGRAMS
        ]
        report.programs = [search.report for search in searches]
        for limit in range(_SLICE, max_interleavings + _SLICE, _SLICE):
            for search in searches:
                search.advance(min(limit, max_interleavings), deadline, on_interleaving)
                if report.counterexample is not None or _is_past(deadline):
                    return report
            if all(search.is_exhausted for search in searches):
                break
    return report


def _is_past(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() > deadline


def run_interleaving(
    database: ExplorerDatabase, program: str, decide: Decide, *, with_steps: bool = False
) -> JudgedExecution:
    """Execute one interleaving in an empty database, and judge it."""
    execution = ProgramExecution(database)
    PROGRAMS[program](execution)
    record = execution.run(decide, with_steps=with_steps)
    limits, schedules = database.limit_facts(), database.schedule_facts()
    execution.finish(record)
    state, writers = database.read_state()
    judgement = judge(execution.history, state)
    own = findings_of(
        Evidence(
            *(execution.history, state, writers, record, execution.declared_dead),
            unique_jobs=database.unique_jobs(),
            claimed_payloads=execution.claimed_payloads,
            stored_payloads=execution.stored_payloads,
            limits=limits,
            schedules=schedules,
            manual_firings=execution.counts["manual_firings"],
        )
    )
    counts = execution.counts
    counts["commits"] = len(state.ledger)
    counts["lock_waits"] = len(record.lock_waits)
    counts["takeovers"] = sum(
        claim.outcome is Phase.OK and claim.process != FINISHER and (claim.token or 0) > 1
        for claim in execution.history.operations(Verb.CLAIM)
    )
    return JudgedExecution(record, execution.history, (*judgement.findings, *own), counts)


class ProgramSearch:
    """The search through one program's interleavings."""

    def __init__(
        self,
        database: ExplorerDatabase,
        name: str,
        *,
        max_preemptions: int,
        seed: int,
        shrinks: bool,
        only_complete: bool,
    ) -> None:
        self._only_complete = only_complete
        self._database = database
        self._shrinks = shrinks
        self._seed = seed
        self._frontier = Frontier(max_preemptions=max_preemptions, seed=seed)
        self._seen: set[Interleaving] = set()
        self._duplicates_in_a_row = 0
        self.report = ProgramReport(name)

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing is left to try, or random interleavings yield no new ones."""
        if len(self._frontier):
            return False
        return self._only_complete or self._duplicates_in_a_row > _DUPLICATES_IN_A_ROW

    def advance(
        self,
        max_interleavings: int,
        deadline: float | None,
        on_interleaving: Callable[[ProgramReport], None] | None,
    ) -> None:
        """Search until `max_interleavings` different ones were tried in all."""
        report, began = self.report, time.monotonic()
        while report.interleavings < max_interleavings and not self.is_exhausted:
            is_new = self._try_next(report.executed)
            self._duplicates_in_a_row = 0 if is_new else self._duplicates_in_a_row + 1
            if is_new and on_interleaving is not None:
                on_interleaving(report)
            if report.counterexample is not None or _is_past(deadline):
                break
        report.seconds += time.monotonic() - began
        report.complete_bound = self._frontier.complete_bound

    def _try_next(self, number: int) -> bool:
        """Execute one interleaving; return whether it was a new one."""
        prefix = self._frontier.next_prefix()
        decide = (
            RandomInterleaving(self._seed * 1_000_003 + number)
            if prefix is None
            else FollowInterleaving(prefix)
        )
        execution = run_interleaving(self._database, self.report.name, decide)
        self.report.executed += 1
        record = execution.record
        if prefix is not None:
            self._frontier.add_alternatives(prefix, record.decisions)
        if record.interleaving in self._seen:
            return False
        self._seen.add(record.interleaving)
        report = self.report
        report.interleavings += 1
        report.counts += execution.counts
        report.most_preemptions = max(report.most_preemptions, record.preemptions)
        if execution.findings:
            shown = self._shortest(execution) if self._shrinks else execution
            report.counterexample = Counterexample(
                report.name, shown.record.interleaving, self._seed, report.interleavings, shown
            )
        return True

    def _shortest(self, found: JudgedExecution) -> JudgedExecution:
        """The violation with fewer steps, each recorded in words."""

        def attempt(interleaving: Interleaving) -> JudgedExecution:
            return run_interleaving(
                self._database, self.report.name, FollowInterleaving(interleaving), with_steps=True
            )

        smallest = shrink(found, attempt)
        execution = attempt(smallest.record.interleaving)
        if execution.broken_rules & found.broken_rules:
            return execution
        return found  # the violation is not reproducible, so there is nothing to shrink
