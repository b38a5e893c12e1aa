"""Measures the cost of counting queues and purging jobs with many finished jobs.

This part uses the tables of the part `claims` and runs last, because it purges jobs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median

from benchmarks.scaling.population import Population, Templates
from benchmarks.scaling.process import NotMeasured
from faultline.config import Retention
from faultline.postgres.sessions import Connection, connect, run
from faultline.statements import queues, retention

BATCH_SIZE = retention.BATCH_SIZE
_ROUNDS = 10
# Purges the finished jobs, which are a day old. One hour is the shortest retention.
_RETENTION = Retention(succeeded_days=1 / 24, failed_days=1 / 24, ledger_days=1 / 24)


@dataclass
class MaintenanceTimes:
    """Milliseconds of one call, in each round."""

    finished: int
    count: list[float] = field(default_factory=list)
    purge: list[float] = field(default_factory=list)


def measure(
    templates: Templates, *, short: bool, progress: Callable[[str], None]
) -> dict[int, MaintenanceTimes]:
    """Return the times by number of finished jobs, the smaller first."""
    sizes = (20_000, 100_000) if short else (20_000, 10_000_000)
    maintenance_times = {size: MaintenanceTimes(size) for size in sizes}
    with ExitStack() as stack:
        sessions = {}
        for size in sizes:
            progress(f"building {size:,} finished")
            url = templates.database(Population(waiting=10_000, finished=size))
            sessions[size] = stack.enter_context(connect(url, application_name="faultline bench"))
            sessions[size].execute("SET synchronous_commit = off")
        for number in range(_ROUNDS):
            progress(f"counting and purging, round {number + 1} of {_ROUNDS}")
            for size, times in maintenance_times.items():
                times.count.append(median(_count(sessions[size]) for _ in range(3)))
                times.purge.append(_purge(sessions[size]))
    return maintenance_times


def _count(conn: Connection) -> float:
    began = time.perf_counter_ns()
    run(conn, queues.queues())
    return (time.perf_counter_ns() - began) / 1e6


def _purge(conn: Connection) -> float:
    began = time.perf_counter_ns()
    purged = run(conn, retention.purge_jobs(_RETENTION, batch_size=BATCH_SIZE))
    spent = (time.perf_counter_ns() - began) / 1e6
    if purged.succeeded != BATCH_SIZE:
        raise NotMeasured(f"{purged.succeeded} jobs were purged, not {BATCH_SIZE}")
    return spent
