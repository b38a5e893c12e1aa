"""Kills workers, and takes the time until what they were doing is being done elsewhere."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from faultline.database import Connection, connect
from faultline.drills.recovery.app import linger
from faultline.drills.witness import Witness
from faultline.errors import FaultlineError

_TABLES = "CREATE SCHEMA recovery; CREATE TABLE recovery.starts (token bigint PRIMARY KEY, pid int)"
_POLL_SECONDS = 0.002


class DrillNotRun(FaultlineError):
    """The drill could not be brought to its end, so it shows nothing."""

    code = "drill_not_run"


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
    """SIGKILL the worker that runs the job, `kills` times, on the (scratch) database at `url`."""
    with ExitStack() as stack:
        conn = stack.enter_context(connect(url, application_name="faultline drill"))
        conn.execute(_TABLES)
        linger.enqueue(conn=conn)
        workers: dict[int, Witness] = {}
        for _ in range(2):
            _start_worker(conn, url, workers, stack, timeout_seconds)
        measured = []
        token, pid = _next_start(conn, 0, timeout_seconds)
        for _ in range(kills):
            os.kill(pid, signal.SIGKILL)
            killed_at = time.monotonic()
            token, pid = _next_start(conn, token, timeout_seconds)
            measured.append(time.monotonic() - killed_at)
            on_kill(measured[-1])
            _start_worker(conn, url, workers, stack, timeout_seconds)
        return RecoveryReport(tuple(measured))


def _start_worker(
    conn: Connection,
    url: str,
    workers: dict[int, Witness],
    stack: ExitStack,
    timeout_seconds: float,
) -> None:
    """Start a worker with nothing but default settings, and wait until it is there."""
    witness = Witness("worker", app="faultline.drills.recovery.app:app", url=url)
    stack.callback(witness.end)
    workers[witness.process.pid] = witness
    deadline = time.monotonic() + timeout_seconds
    query = "SELECT FROM faultline.workers WHERE pid = %s AND last_heartbeat_at > started_at"
    while conn.execute(query, [witness.process.pid]).fetchone() is None:
        if witness.process.poll() is not None or time.monotonic() > deadline:
            said = "\n".join(witness.stray_lines[-20:]) or "nothing"
            raise DrillNotRun(f"a worker did not start; it said: {said}")
        time.sleep(_POLL_SECONDS)


def _next_start(conn: Connection, token: int, timeout_seconds: float) -> tuple[int, int]:
    """The next time that the job is seen running, after the one under `token`: token and process."""
    deadline = time.monotonic() + timeout_seconds
    query = "SELECT token, pid FROM recovery.starts WHERE token > %s ORDER BY token DESC LIMIT 1"
    while (row := conn.execute(query, [token]).fetchone()) is None:
        if time.monotonic() > deadline:
            raise DrillNotRun(f"the job did not run again within {timeout_seconds:g} s")
        time.sleep(_POLL_SECONDS)
    return int(row[0]), int(row[1])
