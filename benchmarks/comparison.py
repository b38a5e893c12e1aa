"""Runs every workload with every peer, repeatedly and in random order."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import psycopg

from benchmarks.environments import Environment
from benchmarks.peer import Peer
from benchmarks.processes import PeerFailed, Program
from benchmarks.selection import EVERYTHING, Selection
from benchmarks.trial import TrialServers, open_trial
from benchmarks.turn_limits import TurnLimits
from benchmarks.workloads import Workload


@dataclass(frozen=True)
class Turn:
    """One measurement to take: a peer with a workload."""

    repeat: int
    workload: Workload
    peer: Peer


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The result of one turn: values, or the problem."""

    repeat: int
    workload: str
    peer: str
    jobs: int
    concurrency: int
    seconds: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    details: Mapping[str, object] = field(default_factory=dict)
    took_seconds: float = 0.0  # the whole turn
    problem: str | None = None

    def facts(self) -> dict[str, Any]:
        return asdict(self)


def turns(
    peers: Sequence[Peer],
    workloads: Sequence[Workload],
    repeats: int,
    seed: int,
    selection: Selection = EVERYTHING,
) -> list[Turn]:
    """Return all turns; the seed decides the order of peers for each workload."""
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    planned = []
    for repeat in range(repeats):
        for group in _groups(workloads):
            taking = [
                Turn(repeat, workload, peer)
                for workload in group
                for peer in peers
                if excluded_because(peer, workload) is None
                and repeat < selection.repeats_of(peer.name, workload.name, repeats)
            ]
            chance.shuffle(taking)
            planned += taking
    return planned


def _groups(workloads: Sequence[Workload]) -> list[list[Workload]]:
    """Group the workloads whose peers are compared with each other."""
    groups: list[list[Workload]] = []
    for workload in workloads:
        if groups and workload.together_with in [each.name for each in groups[-1]]:
            groups[-1].append(workload)
        else:
            groups.append([workload])
    return groups


def excluded_because(peer: Peer, workload: Workload) -> str | None:
    """Return why the peer excludes the workload or its kind of jobs, else None."""
    if workload.only not in (None, peer.name):
        return f"only {workload.only} runs it"
    if workload.in_batches and peer.batches is None:
        return "it neither has batch handlers nor finishes jobs in batches"
    return peer.cannot.get(workload.name) or peer.cannot.get(str(workload.size))


def run_comparison(
    planned: Sequence[Turn],
    environments: Mapping[str, Environment],
    servers: TrialServers,
    *,
    scale: float,
    limits: TurnLimits,
    on_turn: Callable[[Turn], None],
    until: float = float("inf"),
) -> Iterator[Sample]:
    """Yield one sample per turn; skip a peer that failed twice at the same workload.

    No turn begins that would end after `until`, by the monotonic clock.
    """
    failures: dict[tuple[str, str], int] = {}
    for turn in planned:
        key = (turn.peer.name, turn.workload.name)
        if failures.get(key, 0) >= 2:
            continue
        began = time.monotonic()
        if began + turn.workload.budget_seconds(limits) > until:
            return
        on_turn(turn)
        program = environments[turn.peer.name].program
        sample = _take(turn, program, servers, scale=scale, limits=limits)
        sample = replace(sample, took_seconds=round(time.monotonic() - began, 2))
        if sample.problem:
            failures[key] = failures.get(key, 0) + 1
        yield sample


def _take(
    turn: Turn, program: Program, servers: TrialServers, *, scale: float, limits: TurnLimits
) -> Sample:
    peer, workload = turn.peer, turn.workload
    jobs, concurrency = workload.jobs_of(peer, scale), peer.concurrency_of(workload.name)

    def sample(**found: Any) -> Sample:
        return Sample(
            repeat=turn.repeat,
            workload=workload.name,
            peer=peer.name,
            concurrency=concurrency,
            **{"jobs": jobs, **found},
        )

    try:
        with open_trial(
            servers,
            peer,
            program,
            workload=workload.name,
            jobs=jobs,
            concurrency=concurrency,
            limits=limits,
        ) as trial:
            outcome = workload.run(trial)
    except (PeerFailed, psycopg.Error, OSError, ValueError, KeyError) as problem:
        return sample(problem=f"{type(problem).__name__}: {problem}".removeprefix("PeerFailed: "))
    return sample(
        jobs=outcome.jobs,
        seconds=outcome.seconds,
        values=outcome.values,
        details=outcome.details,
    )
