"""Should heartbeats stop all the same, another worker finishes the job, and the late one is refused."""

from __future__ import annotations

from pathlib import Path

from tests.failure_modes.crew import APP, LOOP_HEARTBEAT_APP, Crew
from tests.failure_modes.standstill import KEEPS_ITS_JOB, LONG_LEASE
from tests.processes import apps
from tests.processes.fifo import let_go, make_fifo
from tests.processes.observed_database import ObservedDatabase


def test_a_worker_whose_heartbeats_stopped_is_refused_and_goes_on_to_other_jobs(
    crew: Crew, database: ObservedDatabase, home: Path
) -> None:
    fifo = make_fifo(home)
    job_id = database.enqueue(apps.block_the_loop, fifo=str(fifo))
    crew.app = LOOP_HEARTBEAT_APP
    blocked = crew.started(*KEEPS_ITS_JOB, name="blocked")
    database.wait_for_mark(job_id)
    crew.app = APP
    other = crew.started(*LONG_LEASE, "--max-jobs", "1", name="other")
    assert other.wait() == 0  # it leaves when that job is done, and takes no other one
    assert database.job(job_id)[:2] == ("succeeded", 2)

    let_go(database, fifo)

    refused = blocked.wait_for_event("stale_write_blocked", job_id=job_id, stale_token=1)
    assert refused["current_token"] == 2
    assert database.payments(job_id) == 1
    later = database.enqueue(apps.pay)
    blocked.wait_for_event("commit_ok", job_id=later, token=1)
    database.assert_in_order()
