"""A reconciler that acts on what it saw a moment ago puts a finished job back into the queue.

The fence is out, and `reconcile` looks first and acts later, without locking what it looks at.
"""

from __future__ import annotations

import pytest

from faultline.statements import protocol
from tests.failure_modes.conftest import Apply
from tests.failure_modes.patches import LOOK_THEN_TAKE_BACK
from tests.failure_modes.stalled_commit import run_what_is_queued, stalled_commit
from tests.processes.observed_database import ObservedDatabase
from tests.races.stepper import Actor, Connect


@pytest.mark.usefixtures("without_fence")
def test_a_reconciler_that_looks_first_and_acts_later_repeats_a_finished_job(
    database: ObservedDatabase, connect: Connect, apply: Apply
) -> None:
    apply(LOOK_THEN_TAKE_BACK)
    worker, claim = stalled_commit(database, connect)
    reconciler = Actor(connect)
    reconciler.start(protocol.reconcile(max_jobs=10))
    assert reconciler.is_blocked()  # it has looked, and waits to write

    worker.commit()

    assert [each.job_id for each in reconciler.result()] == [claim.job_id]
    assert database.job(claim.job_id).state == "queued"
    assert run_what_is_queued(database) == 1
    assert database.payments(claim.job_id) == 2
