"""Measures the load of many idle workers on the database.

The workers are real ones at default settings, with reconciler, heartbeat and listener. A process runs several
of them, so that a hundred fit on a small machine; that makes no difference to the server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import LiteralString

from benchmarks.scaling.population import Population, Templates
from benchmarks.scaling.process import NotMeasured, cpu_seconds, sleep_until, workers
from faultline.postgres.sessions import Connection, connect

_PER_PROCESS = 20
_RESERVED_CONNECTIONS = 15  # for the server itself and for the measurement
_CONNECTIONS_EACH = 5  # assumed before the first measurement
_START_SECONDS = 120.0
_SETTLE_SECONDS = 2.0
_OF_WORKERS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND starts_with(application_name, 'faultline ')
"""
_REGISTERED = "SELECT count(*) FROM faultline.workers WHERE lost_at IS NULL"
_TRANSACTIONS = """
    SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()
"""


@dataclass(frozen=True)
class Load:
    workers: int
    processes: int
    connections: int
    seconds: float  # of measurement
    transactions_per_second: float
    cpu_share: float  # processor seconds of the server per second: 1 is one core


def measure(
    templates: Templates, sizes: Sequence[int], *, seconds: float, progress: Callable[[str], None]
) -> list[Load]:
    """Measure each number of workers, limited by the server's max_connections."""
    found: list[Load] = []
    with (
        templates.copy(Population(waiting=0)) as url,
        connect(url, application_name="bench") as conn,
    ):
        for size in sizes:
            fitting = min(size, _max_workers(conn, found))
            per_process = min(max(1, fitting), _PER_PROCESS)
            progress(f"measuring {fitting} idle workers")
            found.append(_observe(url, conn, fitting // per_process, per_process, seconds))
    return found


def _max_workers(conn: Connection, found: Sequence[Load]) -> int:
    last = found[-1] if found and found[-1].workers else None
    each = last.connections / last.workers if last else _CONNECTIONS_EACH
    return int(
        (_number(conn, "SELECT current_setting('max_connections')") - _RESERVED_CONNECTIONS) / each
    )


def _observe(url: str, conn: Connection, processes: int, per_process: int, seconds: float) -> Load:
    options = ("--workers", str(per_process))
    with workers(url, processes, *options, module="benchmarks.scaling.many_workers"):
        count = processes * per_process
        deadline = time.monotonic() + _START_SECONDS
        while _number(conn, _REGISTERED) < count:
            if not sleep_until(deadline, 0.2):
                raise NotMeasured(f"{count} workers did not all register in {_START_SECONDS:g} s")
        time.sleep(_SETTLE_SECONDS)
        sessions = [pid for (pid,) in conn.execute("SELECT pid FROM pg_stat_activity")]
        connections = int(_number(conn, _OF_WORKERS))
        began, done, spent = time.monotonic(), _number(conn, _TRANSACTIONS), cpu_seconds(sessions)
        time.sleep(seconds)
        elapsed = time.monotonic() - began
        return Load(
            workers=count,
            processes=processes,
            connections=connections,
            seconds=elapsed,
            transactions_per_second=(_number(conn, _TRANSACTIONS) - done) / elapsed,
            cpu_share=(cpu_seconds(sessions) - spent) / elapsed,
        )


def _number(conn: Connection, query: LiteralString) -> float:
    (value,) = conn.execute(query).fetchone() or (0,)
    return float(value)
