"""A process that claims a job with SQL alone, and then kills itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from faultline.postgres.sessions import connect, run
from faultline.statements import protocol
from tests.processes.fleet import BOUND_SECONDS, ROOT
from tests.processes.observed_database import ObservedDatabase

MAX_ATTEMPTS = 2


def main(url: str) -> None:
    with connect(url) as conn:
        if run(conn, protocol.claim("bare", ["default"], batch_size=1, lease_seconds=600)):
            os.kill(os.getpid(), signal.SIGKILL)


def run_one(url: str) -> bool:
    """Start one; whether it claimed a job and was killed."""
    command = [sys.executable, "-m", "tests.failure_modes.bare_worker", url]
    code = subprocess.run(command, cwd=ROOT, timeout=BOUND_SECONDS, check=False).returncode
    assert code in (0, -signal.SIGKILL)
    return code != 0


def expire_lease(database: ObservedDatabase) -> None:
    """Let the running job's lease expire."""
    database.conn.execute(
        "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() WHERE state = 'running'"
    )


if __name__ == "__main__":
    main(sys.argv[1])
