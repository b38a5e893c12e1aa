"""Heartbeats on the event loop stop when a handler blocks it: a healthy worker loses its job.

The guards that are missing are the heartbeat's own thread, by a patch of the worker, and the fence.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.failure_modes.crew import APP, LOOP_HEARTBEAT_APP, Crew
from tests.failure_modes.standstill import KEEPS_ITS_JOB, LONG_LEASE
from tests.processes import apps
from tests.processes.fifo import let_go, make_fifo
from tests.processes.observed_database import ObservedDatabase


@pytest.mark.usefixtures("without_fence")
def test_with_heartbeats_on_the_loop_a_handler_that_blocks_it_is_run_twice(
    crew: Crew, database: ObservedDatabase, home: Path
) -> None:
    fifo = make_fifo(home)
    job_id = database.enqueue(apps.block_the_loop, fifo=str(fifo))
    crew.app = LOOP_HEARTBEAT_APP
    blocked = crew.started(*KEEPS_ITS_JOB, name="blocked")
    database.wait_for_mark(job_id)
    crew.app = APP
    crew.started(*LONG_LEASE, name="other")
    assert database.wait_for_state(job_id)[:2] == ("succeeded", 2)
    assert blocked.is_alive

    let_go(database, fifo)

    blocked.wait_for_event("commit_ok", job_id=job_id, token=1)
    assert database.payments(job_id) == 2
