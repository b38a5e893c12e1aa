"""A worker that stalls, and reports a failure after another finished its job."""

from __future__ import annotations

import signal
from uuid import UUID

from tests.failure_modes import apps
from tests.failure_modes.failure_mode_fleet import FailureModeFleet
from tests.failure_modes.stopped_worker import KEEPS_ITS_LEASE, LONG_LEASE, stop_and_wait
from tests.processes.fleet import Process
from tests.processes.observed_database import ObservedDatabase

GATE = "fail now"


def report_stale_failure(
    fleet: FailureModeFleet, database: ObservedDatabase
) -> tuple[UUID, Process]:
    """Let another worker finish the job; then resume the stale one, which fails."""
    job_id = database.enqueue(apps.fail_late, gate=GATE)
    stale = fleet.started(*KEEPS_ITS_LEASE, name="stale")
    database.wait_for_mark(job_id)
    stop_and_wait(database, stale)
    fleet.started(*LONG_LEASE, name="other")
    assert database.wait_for_state(job_id)[:2] == ("succeeded", 2)
    database.open(GATE)
    stale.send(signal.SIGCONT)
    return job_id, stale
