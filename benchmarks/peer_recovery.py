"""How long the running job of a peer's killed worker takes to run in another, at the peer's defaults."""

from __future__ import annotations

import os
import random
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import psycopg

from benchmarks.peer import Peer
from benchmarks.processes import Deadline, PeerFailed, Program, RoleProcess
from benchmarks.trial import Stage, open_trial

RECOVERY = "recovery"  # what a worker is told to be doing
KILLS = 3
BOUND_SECONDS = 150.0
_START_SECONDS = 60.0
# The second worker has started by then, and no two kills meet a heartbeat or a minute at the same point.
_SOONEST_SECONDS, _LATEST_SECONDS = 5.0, 25.0


@dataclass(frozen=True)
class PeerRecovery:
    """Seconds from each SIGKILL until the job ran elsewhere; None where the bound came first."""

    peer: Peer
    seconds: Sequence[float | None]
    bound_seconds: float = BOUND_SECONDS
    problem: str | None = None  # why there are fewer than were asked for

    @property
    def median(self) -> float | None:
        return self._at(statistics.median_low)

    @property
    def longest(self) -> float | None:
        return self._at(max)

    def facts(self) -> dict[str, Any]:
        return {
            "settings": self.peer.recovery,
            "n": len(self.seconds),
            "p50": self.median,
            "max": self.longest,
            "bound_seconds": self.bound_seconds,
            "seconds": [None if value is None else round(value, 3) for value in self.seconds],
            "problem": self.problem,
        }

    def _at(self, pick: Callable[[list[float]], float]) -> float | None:
        """A job that did not run in time took longer than any that did."""
        never = float("inf")
        if not self.seconds:
            return None
        found = pick([never if value is None else value for value in self.seconds])
        return None if found == never else found


def measure_peer(
    stage: Stage,
    peer: Peer,
    program: Program,
    *,
    seed: int,
    kills: int = KILLS,
    bound_seconds: float = BOUND_SECONDS,
) -> PeerRecovery:
    """All kills at a time, each with a database and two workers of its own: most of this is waiting."""
    chance = random.Random(f"{seed} {peer.name}")  # noqa: S311 - moments, not secrets
    pauses = [chance.uniform(_SOONEST_SECONDS, _LATEST_SECONDS) for _ in range(kills)]

    def attempt(pause_seconds: float) -> float | PeerFailed | None:
        try:
            return kill_once(stage, peer, program, pause_seconds, bound_seconds)
        except (PeerFailed, psycopg.Error, OSError) as problem:
            return PeerFailed(str(problem))

    with ThreadPoolExecutor(kills) as threads:
        found = list(threads.map(attempt, pauses))
    problems = [str(value) for value in found if isinstance(value, PeerFailed)]
    seconds = [value for value in found if not isinstance(value, PeerFailed)]
    return PeerRecovery(peer, seconds, bound_seconds, problems[0] if problems else None)


def kill_once(
    stage: Stage, peer: Peer, program: Program, pause_seconds: float, bound_seconds: float
) -> float | None:
    """SIGKILL a worker that holds a job while another one is there; None: not within the bound."""
    with (
        open_trial(
            stage,
            peer,
            program,
            workload=RECOVERY,
            jobs=1,
            concurrency=peer.concurrency_of(RECOVERY),
            timeout_seconds=_START_SECONDS,
        ) as trial,
        trial.start_worker() as first,
    ):
        trial.enqueue("hold", 1)
        first.wait_for(lambda heard: bool(held_ns(heard)), trial.deadline)
        with trial.start_worker() as second:
            time.sleep(pause_seconds)
            first.require_alive()
            os.killpg(first.process.pid, signal.SIGKILL)
            killed_ns = time.monotonic_ns()
            return _until_held(second, killed_ns, bound_seconds)


def held_ns(heard: Sequence[dict[str, Any]]) -> list[int]:
    """When a worker said that it holds a job, by the clock that all processes share."""
    return [line["held_ns"] for line in heard if "held_ns" in line]


def _until_held(worker: RoleProcess, killed_ns: int, bound_seconds: float) -> float | None:
    try:
        worker.wait_for(lambda heard: bool(held_ns(heard)), Deadline(bound_seconds))
    except PeerFailed:
        worker.require_alive()  # a worker that is gone has not waited in vain: it has failed
        return None
    held = held_ns(worker.heard)[0]
    if held < killed_ns:
        raise PeerFailed("a second worker started the job while the first one was alive")
    return (held - killed_ns) / 1e9
