"""A process that reconciles expired leases, by its own clock or by the database's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from faultline.postgres.sessions import connect, run
from faultline.statements import protocol
from tests.processes.fleet import BOUND_SECONDS, ROOT

OWN_CLOCK, DATABASE_CLOCK = "own clock", "database clock"
BY_OWN_CLOCK = """
    UPDATE faultline.jobs SET state = 'queued', lease_owner = NULL, lease_expires_at = NULL
    WHERE state = 'running' AND lease_expires_at <= %s
"""


@dataclass(frozen=True)
class ProcessReconciliation:
    jobs: int
    clock_error: timedelta


def reconcile_in_process(
    url: str, judge: str, environment: Mapping[str, str]
) -> ProcessReconciliation:
    """Run it in a process whose environment may shift its clock."""
    command = [sys.executable, "-m", "tests.failure_modes.clock_reconciler", url, judge]
    output = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        timeout=BOUND_SECONDS,
        check=True,
    ).stdout
    answer = json.loads(output)
    error = datetime.fromisoformat(answer["now"]) - datetime.now(UTC)
    return ProcessReconciliation(answer["jobs"], timedelta(days=round(error / timedelta(days=1))))


def main(url: str, judge: str) -> None:
    now = datetime.now(UTC)
    with connect(url) as conn:
        if judge == OWN_CLOCK:
            jobs = conn.execute(BY_OWN_CLOCK, [now]).rowcount
        else:
            jobs = len(run(conn, protocol.reconcile(max_jobs=10)))
    print(json.dumps({"jobs": jobs, "now": now.isoformat()}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
