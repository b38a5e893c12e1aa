"""A worker that is stopped (SIGSTOP), with no statement running at the server."""

from __future__ import annotations

import os
import signal

from tests.processes.fleet import Process
from tests.processes.observed_database import ObservedDatabase

# One slot, no reconciler, no self-fencing: while the worker is alone its lease is not reconciled,
# however late its heartbeats are.
KEEPS_ITS_LEASE = (
    *("--lease-seconds", "1", "--concurrency", "1"),
    *("--no-reconciler", "--no-self-fencing"),
)
# For the worker that takes over, so that it keeps the job.
LONG_LEASE = ("--lease-seconds", "600")
_AT_WORK = (
    "FROM pg_stat_activity WHERE application_name LIKE 'faultline%' AND state = 'active'"
    " AND datname = current_database()"
)


def stop_and_wait(database: ObservedDatabase, worker: Process) -> None:
    """SIGSTOP it, and wait until the statements that it had sent have ended."""
    worker.send(signal.SIGSTOP)
    database.wait_until(lambda: _is_stopped(worker.pid), f"{worker.name} does not stop")
    database.wait_until(
        lambda: database.count(_AT_WORK) == 0, f"{worker.name} still has active sessions"
    )


def _is_stopped(pid: int) -> bool:
    """Whether every thread of the process has stopped."""
    look_only = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, pid, look_only) is not None
