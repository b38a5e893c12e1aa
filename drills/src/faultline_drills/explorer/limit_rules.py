"""Rules about limits: how many jobs ran, and whether places add up. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from faultline_drills.recording.database_state import Transition

UNLIMITED = 1_000_000


@dataclass(frozen=True, slots=True)
class LimitChange:
    order: int  # among the transitions
    max_running: int


@dataclass(frozen=True, slots=True)
class LimitFacts:
    """What the database says about limits when all actors have ended."""

    changes: Sequence[LimitChange] = ()
    until: int = 0  # the last order number then; later the drill finishes the jobs itself
    places: frozenset[str] = frozenset()  # the jobs that have a place
    running: frozenset[str] = frozenset()  # the jobs that run
    in_line: frozenset[str] = frozenset()  # the jobs in waiting_jobs
    parked: frozenset[str] = frozenset()  # the jobs that claims do not read
    keys: Mapping[str, str] = field(default_factory=dict)  # of jobs under a limit with keys

    @property
    def are_used(self) -> bool:
        return bool(self.changes)


def no_more_run_than_the_limit(
    transitions: Sequence[Transition], facts: LimitFacts
) -> Iterator[str]:
    """No job starts while as many of its key run as the limit allows at that moment.

    A claim counts only places that committed transactions have freed, and a change of the limit and
    claims exclude each other, so the order of their sequence numbers is their real order.
    """
    steps: list[Transition | LimitChange] = [*facts.changes]
    steps += [step for step in transitions if step.order <= facts.until]
    allowed, all_running = UNLIMITED, defaultdict[str, set[str]](set)
    for step in sorted(steps, key=lambda each: each.order):
        if isinstance(step, LimitChange):
            allowed = step.max_running
            continue
        key = facts.keys.get(step.job, "")
        running = all_running[key]
        if step.after != "running":
            running.discard(step.job)
        elif step.before != "running":
            running.add(step.job)
            if len(running) > allowed:
                of_key = f" of key {key}" if key else ""
                yield f"job {step.job} started as number {len(running)} of at most {allowed}{of_key}"


def places_belong_to_running_jobs(facts: LimitFacts) -> Iterator[str]:
    for job in sorted(facts.places - facts.running):
        yield f"job {job} has a place and does not run"
    for job in sorted(facts.running - facts.places):
        yield f"job {job} runs without a place"


def waiting_jobs_are_in_line(facts: LimitFacts) -> Iterator[str]:
    for job in sorted(facts.parked - facts.in_line):
        yield f"job {job} waits for a place and is in no line"
