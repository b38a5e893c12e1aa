"""Tries concurrency, processes and batch sizes on jobs with a write."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, LiteralString

from faultline.postgres.sessions import Connection
from faultline.task import Task
from faultline_drills.bench.bench_settings import MAX_WORKERS, BenchSettings
from faultline_drills.bench.bench_tasks import BATCH_TASKS, write
from faultline_drills.bench.bench_workers import BenchWorkers
from faultline_drills.bench.drain_rate import DrainMeasurement
from faultline_drills.bench.trials import Trials, smallest_that_is_enough

CONCURRENCIES = (5, 10, 20, 40)
_MIN_SECONDS = 0.02
_MOST_PROCESSES = 8
_SESSIONS: LiteralString = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user
      AND application_name LIKE 'faultline%%' AND pid <> pg_backend_pid()
"""


def try_settings(
    url: str, conn: Connection, settings: BenchSettings, budget_seconds: float, start_seconds: float
) -> Trials:
    """Try each value with workers of its own; starting them is a part of the budget."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    counts = _process_counts(cores or 1)
    starts = len(CONCURRENCIES) + 1 + sum(counts)
    drains = len(CONCURRENCIES) + len(BATCH_TASKS) + len(counts)
    seconds = max(_MIN_SECONDS, (budget_seconds - starts * start_seconds) / drains)
    found = Trials(cores=cores or 1, max_connections=_number(conn, "SHOW max_connections"))

    def drain(workers: BenchWorkers, task: Task[Any, Any]) -> float:
        return DrainMeasurement(conn, workers, task, settings).rate(seconds)

    for concurrency in CONCURRENCIES:
        with BenchWorkers(url, replace(settings, workers=1, concurrency=concurrency)) as workers:
            workers.start()
            found.concurrency[concurrency] = drain(workers, write)
    chosen = smallest_that_is_enough(found.concurrency)
    with BenchWorkers(url, replace(settings, workers=1, concurrency=chosen)) as workers:
        workers.start()
        found.processes[1] = max(found.concurrency[chosen], drain(workers, write))
        found.connections = _number(conn, _SESSIONS)
        for size, task in BATCH_TASKS.items():
            found.batch_size[size] = drain(workers, task)
    for count in counts:
        with BenchWorkers(url, replace(settings, workers=count, concurrency=chosen)) as workers:
            workers.start()
            found.processes[count] = drain(workers, write)
        if smallest_that_is_enough(found.processes) < count:
            break  # more processes are no faster
    return found


def _process_counts(cores: int) -> Sequence[int]:
    """The numbers of processes to try besides one: doubled up to the number of cores."""
    most = min(cores, _MOST_PROCESSES, MAX_WORKERS)
    return [2**power for power in range(1, most.bit_length()) if 2**power <= most]


def _number(conn: Connection, query: LiteralString) -> int:
    return int(conn.execute(query).fetchall()[0][0])
