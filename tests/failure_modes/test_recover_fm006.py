"""A dead job keeps its history, and runs again when an operator retries it."""

from __future__ import annotations

from faultline.postgres.sessions import run
from faultline.statements import protocol
from tests.failure_modes import apps
from tests.failure_modes.bare_worker import MAX_ATTEMPTS, expire_lease
from tests.failure_modes.failure_mode_fleet import FailureModeFleet
from tests.processes.observed_database import ObservedDatabase
from tests.races.stepper import claim_as


def test_a_dead_job_runs_again_when_an_operator_retries_it(
    fleet: FailureModeFleet, database: ObservedDatabase
) -> None:
    job_id = database.enqueue(apps.kill_the_worker)
    for _ in range(MAX_ATTEMPTS):
        assert len(run(database.conn, claim_as("lost"))) == 1
        expire_lease(database)
        run(database.conn, protocol.reconcile(max_jobs=1))
    assert database.job(job_id) == ("failed", MAX_ATTEMPTS, "poison", MAX_ATTEMPTS)
    assert run(database.conn, claim_as("other")) == []

    database.open("repaired")
    assert run(database.conn, protocol.retry(job_id)) == "queued"

    fleet.started("--lease-seconds", "600")
    assert database.wait_for_state(job_id) == ("succeeded", 1, None, MAX_ATTEMPTS + 1)
    assert database.outcomes(job_id) == ["expired", "expired", "retried"]
    assert database.payments(job_id) == 1
    database.assert_in_order()
