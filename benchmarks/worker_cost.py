"""Measures what the worker's own Python costs per no-op job, without PostgreSQL.

    python -m benchmarks.worker_cost [--before COMMIT] [--rounds 7] [--jobs 10000] [--profile]

A worker claims, runs and commits jobs through all of its parts. Only its sessions are replaced: they answer
at once, with prepared rows, so neither the driver nor the network is in the figures. Two kinds of handlers
run: one that ends without suspending, and one that suspends once. Each round measures this checkout and the
source of `--before` in turn, each in a process of its own. The result is processor time: medians of the
rounds. `--profile` prints the functions of this checkout that take longest.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import uvloop

import faultline
from faultline.config import WorkerSettings
from faultline.model import Claim
from faultline.postgres.reconnecting import ReconnectingSession
from faultline.workers import Worker, slots

HANDLERS = ("noop", "suspends")
_CONCURRENCY = 20
_TURNS = 3  # in one process; the best counts
_END_SECONDS = 60.0
_SHOWN = 40  # functions of a profile
_DUE_AT = "2026-01-01 00:00:00+00"

app = faultline.Faultline("postgresql://unused.invalid/unused")


@app.task(name="noop")
async def noop(job: faultline.Job, n: int, filler: str) -> None:
    pass


@app.task(name="suspends")
async def suspends(job: faultline.Job, n: int, filler: str) -> None:
    await asyncio.sleep(0)


class Answers:
    """Answers a worker's statements as a database with due jobs would."""

    def __init__(self, task: str, jobs: int) -> None:
        width = len(Claim._fields)  # an older source has fewer
        payload = '{"n": 5, "filler": "xxxxxxxx"}'
        self.rows = [
            (
                *(str(uuid.uuid4()), 1, str(uuid.uuid4()), task, "default", payload, 1, 10, 0, 5),
                *(_DUE_AT, None, None, None),
            )[:width]
            for _ in range(jobs)
        ]

    async def run(self, statement: Any) -> Any:
        await asyncio.sleep(0)
        if "faultline.claim(" not in statement.sql:
            return statement.read([])
        size = next(value for value in statement.params if type(value) is int)
        rows = self.rows[-size:]
        del self.rows[-size:]
        return statement.read(rows)


class Unannounced:
    """A worker that never announces that it is idle."""

    async def is_busy(self, notified: Sequence[str], *, now: float) -> None: ...

    async def is_free(self, queues: Sequence[str], *, now: float) -> bool:
        return False

    async def withdraw(self, notified: Sequence[str]) -> None: ...


async def drain(task: str, jobs: int) -> float:
    """Drain the jobs; return the processor time for each, in microseconds."""
    answers = Answers(task, jobs)
    with mock.patch.object(ReconnectingSession, "run", lambda _, statement: answers.run(statement)):
        parts: Any = Worker(app, WorkerSettings(concurrency=_CONCURRENCY))
        parts._claiming._idleness = Unannounced()
        began = time.process_time()
        committing = asyncio.create_task(parts._committer.run())
        claiming = asyncio.create_task(parts._claiming.run([]))
        give_up_at = time.monotonic() + _END_SECONDS
        while parts._slots.started < jobs or parts._slots.running or parts._committer.pending:
            if time.monotonic() > give_up_at:
                raise SystemExit("the worker does not end its jobs")
            await asyncio.sleep(0.001)
        used = time.process_time() - began
        parts._stopping.set()
        parts._wakeup.set()
        await claiming
        committing.cancel()
        await asyncio.wait([committing])
        await parts._calls.close()
    return used / jobs * 1e6


def measure(task: str, jobs: int) -> float:
    """Return the best of a few turns, after one that warms up."""
    # The answers come at once, so that the worker claims more than it can start in half a second.
    with mock.patch.object(slots, "_MAX_WAIT_SECONDS", _END_SECONDS):
        gc.set_threshold(20_000, 50, 50)
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        with runner:
            return min([runner.run(drain(task, jobs)) for _ in range(1 + _TURNS)][1:])


def profile(jobs: int) -> None:
    recorded = cProfile.Profile()
    recorded.runcall(measure, "noop", jobs)
    pstats.Stats(recorded).sort_stats("tottime").print_stats(_SHOWN)


def of_source(source: Path, jobs: int) -> dict[str, float]:
    """Measure a source in a process of its own."""
    command = [sys.executable, __file__, "--jobs", str(jobs), "--measure"]
    environment = {"PYTHONPATH": str(source)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return dict(zip(HANDLERS, map(float, done.stdout.split()), strict=True))


def compare(before: str, *, rounds: int, jobs: int) -> None:
    from benchmarks.before_after import REPOSITORY, source_at

    samples: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="faultline-before-") as folder:
        sources = {"before": source_at(before, Path(folder)), "after": REPOSITORY / "src"}
        for _ in range(rounds):
            for side, source in sources.items():
                for handler, cost in of_source(source, jobs).items():
                    samples.setdefault((handler, side), []).append(cost)
    for handler in HANDLERS:
        old, new = samples[handler, "before"], samples[handler, "after"]
        ratios = [b / a for a, b in zip(old, new, strict=True)]
        print(
            f"{handler:10} {statistics.median(old):6.1f} µs before {statistics.median(new):6.1f} µs after"
            f"  {statistics.median(ratios):.2f}× ({min(ratios):.2f}–{max(ratios):.2f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", default="HEAD", metavar="COMMIT")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(*(measure(handler, options.jobs) for handler in HANDLERS))
    elif options.profile:
        profile(options.jobs)
    else:
        compare(options.before, rounds=options.rounds, jobs=options.jobs)


if __name__ == "__main__":
    main()
