"""A job whose commit is rolled back is requeued, and takes effect once."""

from __future__ import annotations

from faultline.statements import protocol
from tests.failure_modes.stalled_commit import run_queued_jobs, stalled_commit
from tests.processes.observed_database import ObservedDatabase
from tests.races.stepper import Actor, Connect


def test_a_job_whose_commit_was_rolled_back_is_requeued_and_runs_again(
    database: ObservedDatabase, connect: Connect
) -> None:
    worker, claim = stalled_commit(database, connect)
    reconciler = Actor(connect)
    assert reconciler.run(protocol.reconcile(max_jobs=10)) == []

    worker.rollback()

    (requeued,) = reconciler.run(protocol.reconcile(max_jobs=10))
    assert (requeued.job_id, requeued.state, requeued.cause) == (claim.job_id, "queued", "expired")
    assert database.payments(claim.job_id) == 0
    assert run_queued_jobs(database) == 1
    assert database.job(claim.job_id)[:2] == ("succeeded", 2)
    assert database.payments(claim.job_id) == 1
    database.assert_in_order()
