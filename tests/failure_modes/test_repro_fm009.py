"""Heartbeats on a blocked event loop stop, and a live worker loses its job.

The missing guards are the heartbeat's own thread, removed by a patch of the worker, and the fence.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.failure_modes.failure_mode_fleet import APP, LOOP_HEARTBEAT_APP, FailureModeFleet
from tests.failure_modes.stopped_worker import KEEPS_ITS_LEASE, LONG_LEASE
from tests.processes import apps
from tests.processes.fifo import make_fifo, unblock
from tests.processes.observed_database import ObservedDatabase


@pytest.mark.usefixtures("without_fence")
def test_with_heartbeats_on_the_loop_a_blocking_handler_runs_twice(
    fleet: FailureModeFleet, database: ObservedDatabase, home: Path
) -> None:
    fifo = make_fifo(home)
    job_id = database.enqueue(apps.block_the_loop, fifo=str(fifo))
    fleet.app = LOOP_HEARTBEAT_APP
    blocked = fleet.started(*KEEPS_ITS_LEASE, name="blocked")
    database.wait_for_mark(job_id)
    fleet.app = APP
    fleet.started(*LONG_LEASE, name="other")
    assert database.wait_for_state(job_id)[:2] == ("succeeded", 2)
    assert blocked.is_alive

    unblock(database, fifo)

    blocked.wait_for_event("commit_ok", job_id=job_id, token=1)
    assert database.payments(job_id) == 2
