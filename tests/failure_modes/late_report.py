"""A worker that stalls past its lease, comes back when another has done its work, and reports failure."""

from __future__ import annotations

import signal
from uuid import UUID

from tests.failure_modes import apps
from tests.failure_modes.crew import Crew
from tests.failure_modes.standstill import KEEPS_ITS_JOB, LONG_LEASE, stand_still
from tests.processes.fleet import Process
from tests.processes.observed_database import ObservedDatabase

GATE = "fail now"


def report_late(crew: Crew, database: ObservedDatabase) -> tuple[UUID, Process]:
    """The job has been done by another worker; the stale one is about to say that it failed."""
    job_id = database.enqueue(apps.fail_late, gate=GATE)
    stale = crew.started(*KEEPS_ITS_JOB, name="stale")
    database.wait_for_mark(job_id)
    stand_still(database, stale)
    crew.started(*LONG_LEASE, name="other")
    assert database.wait_for_state(job_id)[:2] == ("succeeded", 2)
    database.open(GATE)
    stale.send(signal.SIGCONT)
    return job_id, stale
