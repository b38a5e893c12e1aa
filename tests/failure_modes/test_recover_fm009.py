"""If heartbeats stop, another worker finishes the job; the late one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.failure_modes.failure_mode_fleet import APP, LOOP_HEARTBEAT_APP, FailureModeFleet
from tests.failure_modes.stopped_worker import KEEPS_ITS_LEASE, LONG_LEASE
from tests.processes import apps
from tests.processes.fifo import make_fifo, unblock
from tests.processes.observed_database import ObservedDatabase


@pytest.mark.slow
def test_a_worker_whose_heartbeats_stopped_is_refused_and_goes_on_to_other_jobs(
    fleet: FailureModeFleet, database: ObservedDatabase, home: Path
) -> None:
    fifo = make_fifo(home)
    job_id = database.enqueue(apps.block_the_loop, fifo=str(fifo))
    fleet.app = LOOP_HEARTBEAT_APP
    blocked = fleet.started(*KEEPS_ITS_LEASE, name="blocked")
    database.wait_for_mark(job_id)
    fleet.app = APP
    other = fleet.started(*LONG_LEASE, "--max-jobs", "1", name="other")
    assert other.wait() == 0  # it ends after that one job
    assert database.job(job_id)[:2] == ("succeeded", 2)

    unblock(database, fifo)

    refused = blocked.wait_for_event("stale_write_blocked", job_id=job_id, stale_token=1)
    assert refused["current_token"] == 2
    assert database.payments(job_id) == 1
    later = database.enqueue(apps.pay)
    blocked.wait_for_event("commit_ok", job_id=later, token=1)
    database.assert_in_order()
