"""Checks a peer's folder: runs each of its roles once with a few jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import psycopg

from benchmarks.comparison import excluded_because
from benchmarks.peer import Peer
from benchmarks.peer_recovery import RECOVERY, held_ns
from benchmarks.processes import PeerFailed, Program
from benchmarks.trial import Trial, TrialServers, open_trial
from benchmarks.workloads import WORKLOADS, Workload

_JOBS = 30
_TIMEOUT_SECONDS = 60.0


def check_peer(
    peer: Peer, program: Program, servers: TrialServers
) -> Iterator[tuple[str, str | None]]:
    """Yield each check with its error, or None."""
    problem = _try(peer, program, servers, "none", lambda trial: None)
    yield "prepare", problem
    if problem:
        return
    for workload in WORKLOADS.values():
        if reason := excluded_because(peer, workload):
            yield f"{workload.name} (excluded: {reason})", None
            continue
        yield workload.name, _try(peer, program, servers, workload.name, partial(_do, workload))
    if peer.recovery:
        yield "hold", _try(peer, program, servers, RECOVERY, _hold_job)
    yield "SIGTERM ends the worker", _try(peer, program, servers, "none", _ends_on_sigterm)


def _try(
    peer: Peer, program: Program, servers: TrialServers, workload: str, act: Callable[[Trial], None]
) -> str | None:
    try:
        with open_trial(
            servers,
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
        raise PeerFailed(f"the values {outcome.values} are not positive")
    if isinstance(workload.size, int) or workload.name.endswith("enqueue"):
        return
    finished = trial.count_finished()
    if finished != trial.jobs:
        raise PeerFailed(f"the peer counts {finished} finished jobs, not {trial.jobs}")
    effects = trial.count_effects()
    expected = trial.jobs if "effects" in outcome.details else 0  # jobs that write are counted
    if effects is not None and effects != expected:
        raise PeerFailed(f"{effects} rows in bench_effects, instead of {expected}")


def _hold_job(trial: Trial) -> None:
    trial.enqueue("hold", 1)
    with trial.start_worker() as worker:
        worker.wait_for(lambda heard: bool(held_ns(heard)), trial.deadline)


def _ends_on_sigterm(trial: Trial) -> None:
    trial.enqueue("noop", 1, batch=1)
    with trial.start_worker() as worker:
        worker.wait_for(lambda heard: any("first_ns" in line for line in heard), trial.deadline)
        if not worker.end():
            raise PeerFailed("the worker was still running 5 s after SIGTERM")
