"""The race: every peer does every workload, again and again, in an order that favours nobody."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import psycopg

from benchmarks.environments import Environment
from benchmarks.peer import Peer
from benchmarks.processes import PeerFailed, Program
from benchmarks.trial import Stage, open_trial
from benchmarks.workloads import Workload


@dataclass(frozen=True)
class Turn:
    """Who does what next."""

    repeat: int
    workload: Workload
    peer: Peer


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What one turn gave: values, or why there are none."""

    repeat: int
    workload: str
    peer: str
    jobs: int
    concurrency: int
    seconds: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    details: Mapping[str, object] = field(default_factory=dict)
    problem: str | None = None

    def facts(self) -> dict[str, Any]:
        return asdict(self)


def turns(
    peers: Sequence[Peer], workloads: Sequence[Workload], repeats: int, seed: int
) -> list[Turn]:
    """Every workload of every repeat, with the peers in a new order each time; the same for the same seed."""
    chance = random.Random(seed)  # noqa: S311 - an order, not a secret
    planned = []
    for repeat in range(repeats):
        for workload in workloads:
            able = [peer for peer in peers if why_not(peer, workload) is None]
            chance.shuffle(able)
            planned += [Turn(repeat, workload, peer) for peer in able]
    return planned


def why_not(peer: Peer, workload: Workload) -> str | None:
    """A peer may exclude a workload by its name, or by the kind of jobs it is made of."""
    return peer.cannot.get(workload.name) or peer.cannot.get(str(workload.size))


def run_race(
    planned: Sequence[Turn],
    environments: Mapping[str, Environment],
    stage: Stage,
    *,
    scale: float,
    timeout_seconds: float,
    on_turn: Callable[[Turn], None],
) -> Iterator[Sample]:
    """One sample per turn; a peer that fails again at the same workload is not asked a third time."""
    failures: dict[tuple[str, str], int] = {}
    for turn in planned:
        key = (turn.peer.name, turn.workload.name)
        if failures.get(key, 0) >= 2:
            continue
        on_turn(turn)
        program = environments[turn.peer.name].program
        sample = _take(turn, program, stage, scale=scale, timeout_seconds=timeout_seconds)
        if sample.problem:
            failures[key] = failures.get(key, 0) + 1
        yield sample


def _take(
    turn: Turn, program: Program, stage: Stage, *, scale: float, timeout_seconds: float
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
            stage,
            peer,
            program,
            workload=workload.name,
            jobs=jobs,
            concurrency=concurrency,
            timeout_seconds=timeout_seconds,
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
