"""A worker that stands still: stopped in the midst of things, with nothing of it under way at the server."""

from __future__ import annotations

import os
import signal

from tests.processes.fleet import Process
from tests.processes.observed_database import ObservedDatabase

# One slot, which its job takes, no reconciler, no clock of its own: while it is alone, nobody takes its
# lease from it, however late its heartbeats are.
KEEPS_ITS_JOB = (
    *("--lease-seconds", "1", "--concurrency", "1"),
    *("--no-reconciler", "--no-self-fencing"),
)
# For whoever takes over: what it has it keeps.
LONG_LEASE = ("--lease-seconds", "600")
_AT_WORK = (
    "FROM pg_stat_activity WHERE application_name LIKE 'faultline%' AND state = 'active'"
    " AND datname = current_database()"
)


def stand_still(database: ObservedDatabase, worker: Process) -> None:
    """Stop it. A heartbeat that it had sent before has been carried out as well."""
    worker.send(signal.SIGSTOP)
    database.wait_until(lambda: _is_stopped(worker.pid), f"{worker.name} does not stop")
    database.wait_until(
        lambda: database.count(_AT_WORK) == 0, f"{worker.name} still has sessions at work"
    )


def _is_stopped(pid: int) -> bool:
    """Told only when every thread of it has stopped."""
    look_only = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, pid, look_only) is not None
