"""Whether a peer's folder keeps the contract: each of its roles, run once and small."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import psycopg

from benchmarks.peer import Peer
from benchmarks.peer_recovery import RECOVERY, held_ns
from benchmarks.processes import PeerFailed, Program
from benchmarks.race import why_not
from benchmarks.trial import Stage, Trial, open_trial
from benchmarks.workloads import WORKLOADS, Workload

_JOBS = 30
_TIMEOUT_SECONDS = 60.0


def check_peer(peer: Peer, program: Program, stage: Stage) -> Iterator[tuple[str, str | None]]:
    """Each thing that was tried, with what is wrong with it; None when nothing is."""
    problem = _try(peer, program, stage, "none", lambda trial: None)
    yield "prepare", problem
    if problem:
        return
    for workload in WORKLOADS.values():
        if reason := why_not(peer, workload):
            yield f"{workload.name} (left out: {reason})", None
            continue
        yield workload.name, _try(peer, program, stage, workload.name, partial(_do, workload))
    if peer.recovery:
        yield "hold", _try(peer, program, stage, RECOVERY, _holds)
    yield "SIGTERM ends the worker", _try(peer, program, stage, "none", _ends_when_told)


def _try(
    peer: Peer, program: Program, stage: Stage, workload: str, act: Callable[[Trial], None]
) -> str | None:
    try:
        with open_trial(
            stage,
            peer,
            program,
            workload=workload,
            jobs=_JOBS,
            concurrency=5,
            timeout_seconds=_TIMEOUT_SECONDS,
        ) as trial:
            act(trial)
    except (PeerFailed, psycopg.Error, OSError, ValueError, KeyError) as problem:
        return str(problem) or type(problem).__name__
    return None


def _do(workload: Workload, trial: Trial) -> None:
    outcome = workload.run(trial)
    if not all(value > 0 for value in outcome.values.values()):
        raise PeerFailed(f"{outcome.values} cannot be")
    if isinstance(workload.size, int) or workload.name.endswith("enqueue"):
        return
    counted = trial.count_finished()
    if counted != trial.jobs:
        raise PeerFailed(f"{counted} jobs are said to be finished, of {trial.jobs}")
    effects = trial.count_effects()
    expected = trial.jobs if workload.size == "write" else 0
    if effects is not None and effects != expected:
        raise PeerFailed(f"{effects} rows in bench_effects, instead of {expected}")


def _holds(trial: Trial) -> None:
    trial.enqueue("hold", 1)
    with trial.start_worker() as worker:
        worker.wait_for(lambda heard: bool(held_ns(heard)), trial.deadline)


def _ends_when_told(trial: Trial) -> None:
    trial.enqueue("noop", 1, batch=1)
    with trial.start_worker() as worker:
        worker.wait_for(lambda heard: any("first_ns" in line for line in heard), trial.deadline)
        if not worker.end():
            raise PeerFailed("it was still there 5 s after SIGTERM")
