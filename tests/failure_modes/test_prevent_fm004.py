"""Every verb locks the job's row: a commit in flight wins, a later one is refused."""

from __future__ import annotations

import pytest

from faultline import StaleLease
from faultline.errors import IllegalTransition
from faultline.statements import protocol
from tests.failure_modes.conftest import Apply
from tests.failure_modes.patches import CHECK_THEN_RECONCILE
from tests.failure_modes.stalled_commit import run_queued_jobs, stalled_commit
from tests.processes.observed_database import ObservedDatabase
from tests.races.stepper import Actor, Connect, claimed, expire


def test_a_reconciler_skips_a_job_whose_commit_is_in_flight(
    database: ObservedDatabase, connect: Connect
) -> None:
    worker, claim = stalled_commit(database, connect)
    reconcilers = [Actor(connect) for _ in range(3)]
    assert [each.run(protocol.reconcile(max_jobs=10)) for each in reconcilers] == [[], [], []]

    worker.commit()

    assert [each.run(protocol.reconcile(max_jobs=10)) for each in reconcilers] == [[], [], []]
    assert run_queued_jobs(database) == 0
    assert database.job(claim.job_id)[:2] == ("succeeded", 1)
    assert database.payments(claim.job_id) == 1
    database.assert_in_order()


def test_a_commit_after_the_reconciler_waits_and_is_refused(
    database: ObservedDatabase, connect: Connect
) -> None:
    (claim,) = claimed(database.conn)
    expire(database.conn, claim)
    reconciler, worker = Actor(connect), Actor(connect)
    reconciler.begin()
    assert len(reconciler.run(protocol.reconcile(max_jobs=10))) == 1
    worker.start(protocol.commit(claim))
    assert worker.is_blocked()

    reconciler.commit()

    with pytest.raises(StaleLease, match="not_running"):
        worker.result()
    assert run_queued_jobs(database) == 1
    assert database.payments(claim.job_id) == 1
    database.assert_in_order()


def test_a_reconciler_that_reads_without_a_lock_cannot_change_a_finished_job(
    database: ObservedDatabase, connect: Connect, apply: Apply
) -> None:
    """The second guard: a trigger keeps a succeeded job succeeded."""
    apply(CHECK_THEN_RECONCILE)
    worker, claim = stalled_commit(database, connect)
    reconciler = Actor(connect)
    reconciler.start(protocol.reconcile(max_jobs=10))
    assert reconciler.is_blocked()

    worker.commit()

    with pytest.raises(IllegalTransition, match="succeeded"):
        reconciler.result()
    assert database.job(claim.job_id).state == "succeeded"
