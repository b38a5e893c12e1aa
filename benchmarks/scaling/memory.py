"""Measures a worker's memory: idle, with 1,000 running jobs, with a long queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import LiteralString

from benchmarks.scaling.population import Population, Templates
from benchmarks.scaling.process import Memory, NotMeasured, memory_of, sleep_until, workers
from faultline.postgres.sessions import Connection, connect

RUNNING_JOBS = 1_000
_START_SECONDS = 30.0
_SETTLE_SECONDS = 1.0
_REGISTERED = "SELECT count(*) FROM faultline.workers WHERE lost_at IS NULL"
_RUNNING = "SELECT count(*) FROM faultline.jobs WHERE state = 'running'"
_STARTED = "SELECT pg_relation_size('faultline.ledger')"


@dataclass(frozen=True)
class Footprint:
    """Memory at the end; `peak` covers the worker's whole life."""

    what: str
    repeat: int
    memory: Memory


def idle_worker(templates: Templates, repeat: int) -> Footprint:
    with _worker(templates, Population(waiting=0)) as (conn, pid):
        _wait(conn, _REGISTERED, 1)
        time.sleep(_SETTLE_SECONDS)
        return Footprint("idle", repeat, memory_of(pid))


def busy_worker(templates: Templates, repeat: int) -> Footprint:
    """Measure a worker whose handlers sleep, so that all of its jobs run at once."""
    sleepers = Population(waiting=RUNNING_JOBS, task="sleeper")
    options = ("--concurrency", str(RUNNING_JOBS), "--drain-seconds", "0")
    with _worker(templates, sleepers, *options) as (conn, pid):
        _wait(conn, _RUNNING, RUNNING_JOBS)
        time.sleep(_SETTLE_SECONDS)
        return Footprint(f"{RUNNING_JOBS:,} jobs running", repeat, memory_of(pid))


def worker_with_a_long_queue(
    templates: Templates, repeat: int, *, waiting: int, seconds: float
) -> Footprint:
    """Measure a worker that drains a long queue: waiting jobs should use no memory."""
    options = ("--concurrency", "100", "--drain-seconds", "2")
    with _worker(templates, Population(waiting=waiting), *options) as (conn, pid):
        _wait(conn, _STARTED, 1)
        time.sleep(seconds)
        return Footprint(f"at work, {waiting:,} waiting", repeat, memory_of(pid))


def measure(
    templates: Templates,
    *,
    waiting: int,
    seconds: float,
    repeats: int,
    progress: Callable[[str], None],
) -> list[Footprint]:
    found = []
    for repeat in range(repeats):
        progress(f"measuring memory, {repeat + 1} of {repeats}")
        found.append(idle_worker(templates, repeat))
        found.append(busy_worker(templates, repeat))
        found.append(worker_with_a_long_queue(templates, repeat, waiting=waiting, seconds=seconds))
    return found


@contextmanager
def _worker(
    templates: Templates, population: Population, *options: str
) -> Iterator[tuple[Connection, int]]:
    """Start one worker on a populated database; yield a connection and its process id."""
    with (
        templates.copy(population) as url,
        connect(url, application_name="bench") as conn,
        workers(url, 1, *options) as (pid,),
    ):
        yield conn, pid


def _wait(conn: Connection, query: LiteralString, expected: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while (conn.execute(query).fetchone() or (0,))[0] < expected:
        if not sleep_until(deadline, 0.1):
            raise NotMeasured(f"not {expected} within {_START_SECONDS:g} s: {query.strip()}")
