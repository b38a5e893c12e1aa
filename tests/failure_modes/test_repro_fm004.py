"""A reconciler that acts on a stale read requeues a finished job.

The fence is removed, and `reconcile` reads first and writes later, without a lock.
"""

from __future__ import annotations

import pytest

from faultline.statements import protocol
from tests.failure_modes.conftest import Apply
from tests.failure_modes.patches import CHECK_THEN_RECONCILE
from tests.failure_modes.stalled_commit import run_queued_jobs, stalled_commit
from tests.processes.observed_database import ObservedDatabase
from tests.races.stepper import Actor, Connect


@pytest.mark.usefixtures("without_fence")
def test_a_reconciler_that_reads_without_a_lock_repeats_a_finished_job(
    database: ObservedDatabase, connect: Connect, apply: Apply
) -> None:
    apply(CHECK_THEN_RECONCILE)
    worker, claim = stalled_commit(database, connect)
    reconciler = Actor(connect)
    reconciler.start(protocol.reconcile(max_jobs=10))
    assert reconciler.is_blocked()  # it has read, and waits to write

    worker.commit()

    assert [each.job_id for each in reconciler.result()] == [claim.job_id]
    assert database.job(claim.job_id).state == "queued"
    assert run_queued_jobs(database) == 1
    assert database.payments(claim.job_id) == 2
