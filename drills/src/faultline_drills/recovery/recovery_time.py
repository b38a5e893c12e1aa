"""Kills workers and measures the time until their job runs on another worker."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from uuid import UUID

from faultline.postgres.sessions import Connection, connect, run
from faultline.statements import protocol
from faultline_drills.context import DrillNotRun
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.recovery.endless_task import linger

_TABLES = """
    CREATE SCHEMA recovery;
    CREATE TABLE recovery.starts (job_id uuid, token bigint, pid int, PRIMARY KEY (job_id, token));
"""
_POLL_SECONDS = 0.002


@dataclass(frozen=True)
class RecoveryReport:
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def p95(self) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]

    @property
    def longest(self) -> float:
        return max(self.seconds)


def measure_recovery(
    url: str,
    *,
    kills: int,
    on_kill: Callable[[float], None] = lambda seconds: None,
    timeout_seconds: float = 60.0,
) -> RecoveryReport:
    """Kill the worker that runs the job, `kills` times, on a scratch database."""
    with ExitStack() as stack:
        conn = stack.enter_context(connect(url, application_name="faultline drill"))
        conn.execute(_TABLES)
        for _ in range(2):
            _start_worker(conn, url, stack, timeout_seconds)
        measured = []
        for _ in range(kills):
            job_id = linger.options(conn=conn).enqueue().job_id
            victim = _wait_for_start(conn, job_id, 1, timeout_seconds)
            os.kill(victim, signal.SIGKILL)
            killed_at = time.monotonic()
            _wait_for_start(conn, job_id, 2, timeout_seconds)
            measured.append(time.monotonic() - killed_at)
            on_kill(measured[-1])
            run(conn, protocol.cancel(job_id))
            _start_worker(conn, url, stack, timeout_seconds)
        return RecoveryReport(tuple(measured))


def _start_worker(conn: Connection, url: str, stack: ExitStack, timeout_seconds: float) -> None:
    """Start a worker with default settings, and wait until it is registered."""
    worker = ObservedProcess("worker", app="faultline_drills.recovery.endless_task:app", url=url)
    stack.callback(worker.end)
    deadline = time.monotonic() + timeout_seconds
    query = "SELECT FROM faultline.workers WHERE pid = %s AND last_heartbeat_at > started_at"
    while conn.execute(query, [worker.pid]).fetchone() is None:
        if not worker.is_alive or time.monotonic() > deadline:
            output = "\n".join(worker.stray_lines[-20:]) or "nothing"
            raise DrillNotRun(f"a worker did not start; its output: {output}")
        time.sleep(_POLL_SECONDS)


def _wait_for_start(conn: Connection, job_id: UUID, token: int, timeout_seconds: float) -> int:
    """Wait until the job runs under this token; return the process id."""
    deadline = time.monotonic() + timeout_seconds
    query = "SELECT pid FROM recovery.starts WHERE job_id = %s AND token = %s"
    while (row := conn.execute(query, [job_id, token]).fetchone()) is None:
        if time.monotonic() > deadline:
            raise DrillNotRun(f"the job did not run within {timeout_seconds:g} s")
        time.sleep(_POLL_SECONDS)
    return int(row[0])
