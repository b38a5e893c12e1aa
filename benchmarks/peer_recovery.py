"""Measures how long a peer needs to run a killed worker's job in another worker."""

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
from benchmarks.trial import TrialServers, open_trial

RECOVERY = "recovery"  # the value of BENCH_WORKLOAD
KILLS = 3
BOUND_SECONDS = 150.0
_START_SECONDS = 60.0
# Long enough for the second worker to start; random, so that kills hit heartbeats at different points.
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 5.0, 25.0


@dataclass(frozen=True)
class PeerRecovery:
    """Seconds from each SIGKILL until the job ran elsewhere; None beyond the bound."""

    peer: Peer
    seconds: Sequence[float | None]
    bound_seconds: float = BOUND_SECONDS
    problem: str | None = None  # why there are fewer values than kills

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
        """Treat a job that did not run within the bound as the slowest."""
        never = float("inf")
        if not self.seconds:
            return None
        found = pick([never if value is None else value for value in self.seconds])
        return None if found == never else found


def measure_peer(
    servers: TrialServers,
    peer: Peer,
    program: Program,
    *,
    seed: int,
    kills: int = KILLS,
    bound_seconds: float = BOUND_SECONDS,
) -> PeerRecovery:
    """Measure all kills at once, each with its own database and two workers."""
    chance = random.Random(f"{seed} {peer.name}")  # noqa: S311 - not for secrets
    pauses = [chance.uniform(_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS) for _ in range(kills)]

    def attempt(pause_seconds: float) -> float | PeerFailed | None:
        try:
            return kill_once(servers, peer, program, pause_seconds, bound_seconds)
        except (PeerFailed, psycopg.Error, OSError) as problem:
            return PeerFailed(str(problem))

    with ThreadPoolExecutor(kills) as threads:
        found = list(threads.map(attempt, pauses))
    problems = [str(value) for value in found if isinstance(value, PeerFailed)]
    seconds = [value for value in found if not isinstance(value, PeerFailed)]
    return PeerRecovery(peer, seconds, bound_seconds, problems[0] if problems else None)


def kill_once(
    servers: TrialServers, peer: Peer, program: Program, pause_seconds: float, bound_seconds: float
) -> float | None:
    """Kill a worker that runs a job; return the seconds until another runs it."""
    with (
        open_trial(
            servers,
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
            # Before the kill: afterwards, the second worker may be faster than this process.
            killed_ns = time.monotonic_ns()
            os.killpg(first.process.pid, signal.SIGKILL)
            return _until_held(second, killed_ns, bound_seconds)


def held_ns(heard: Sequence[dict[str, Any]]) -> list[int]:
    """Return when workers reported a held job, in monotonic nanoseconds."""
    return [line["held_ns"] for line in heard if "held_ns" in line]


def _until_held(worker: RoleProcess, killed_ns: int, bound_seconds: float) -> float | None:
    try:
        worker.wait_for(lambda heard: bool(held_ns(heard)), Deadline(bound_seconds))
    except PeerFailed:
        worker.require_alive()  # a worker that ended has failed; it did not time out
        return None
    held = held_ns(worker.heard)[0]
    if held < killed_ns:
        raise PeerFailed("a second worker started the job while the first one was alive")
    return (held - killed_ns) / 1e9
