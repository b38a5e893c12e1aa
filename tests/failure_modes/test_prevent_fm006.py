"""Attempts count at the claim: a job that kills its workers runs out of them."""

from __future__ import annotations

from tests.failure_modes import apps
from tests.failure_modes.bare_worker import MAX_ATTEMPTS, expire_lease, run_one
from tests.failure_modes.failure_mode_fleet import FailureModeFleet
from tests.processes.observed_database import ObservedDatabase
from tests.races.stepper import enqueued


def test_a_poison_job_fails_when_its_attempts_are_used_up(
    database: ObservedDatabase, database_url: str
) -> None:
    enqueued(database.conn, max_attempts=MAX_ATTEMPTS)

    deaths = 0
    while run_one(database_url):
        deaths += 1
        assert deaths <= MAX_ATTEMPTS
        expire_lease(database)

    assert deaths == MAX_ATTEMPTS
    query = "SELECT state, failed_reason, attempts FROM faultline.jobs"
    assert database.conn.execute(query).fetchone() == ("failed", "poison", MAX_ATTEMPTS)
    database.assert_in_order()


def test_the_last_attempt_of_a_suspected_job_kills_only_a_child_process(
    fleet: FailureModeFleet, database: ObservedDatabase
) -> None:
    poison = database.enqueue(apps.kill_the_worker)
    first = fleet.worker("--lease-seconds", "600", name="first")
    assert first.wait() != 0
    second = fleet.started("--lease-seconds", "600", name="second")

    second.wait_for_event("job_dead", job_id=poison, reason="poison")

    assert database.job(poison) == ("failed", 2, "poison", 2)
    assert database.outcomes(poison) == ["worker_lost", "failed"]
    assert second.is_alive
    other_job = database.enqueue(apps.transfer_nothing)
    second.wait_for_event("commit_ok", job_id=other_job)
    database.assert_in_order()
