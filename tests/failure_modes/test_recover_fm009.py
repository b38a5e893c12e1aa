"""Should heartbeats stop all the same, another worker finishes the job, and the late one is refused."""

from __future__ import annotations

from pathlib import Path

from tests.failure_modes.crew import APP, LOOP_HEARTBEAT_APP, Crew
from tests.failure_modes.standstill import KEEPS_ITS_JOB, LONG_LEASE
from tests.processes import apps
from tests.processes.fifo import let_go, make_fifo
from tests.processes.stage import Stage


def test_a_worker_whose_heartbeats_stopped_is_refused_and_goes_on_to_other_jobs(
    crew: Crew, stage: Stage, home: Path
) -> None:
    fifo = make_fifo(home)
    job_id = stage.enqueue(apps.block_the_loop, fifo=str(fifo))
    crew.app = LOOP_HEARTBEAT_APP
    blocked = crew.started(*KEEPS_ITS_JOB, name="blocked")
    stage.wait_for_mark(job_id)
    crew.app = APP
    other = crew.started(*LONG_LEASE, "--max-jobs", "1", name="other")
    assert other.wait() == 0  # it leaves when that job is done, and takes no other one
    assert stage.job(job_id)[:2] == ("succeeded", 2)

    let_go(stage, fifo)

    refused = blocked.wait_for_event("stale_write_blocked", job_id=job_id, stale_token=1)
    assert refused["current_token"] == 2
    assert stage.payments(job_id) == 1
    later = stage.enqueue(apps.pay)
    blocked.wait_for_event("commit_ok", job_id=later, token=1)
    stage.assert_in_order()
