"""A stale failure report is accepted: a finished or running job is queued again."""

from __future__ import annotations

import pytest

from faultline.postgres.sessions import run
from faultline.statements import protocol
from tests.failure_modes.failure_mode_fleet import FailureModeFleet
from tests.failure_modes.stale_failure import report_stale_failure
from tests.processes.observed_database import ObservedDatabase
from tests.races.stepper import claim_as, claimed, expire, state_of

pytestmark = pytest.mark.usefixtures("without_fence")


def test_without_the_fence_a_stale_failure_report_repeats_a_finished_job(
    fleet: FailureModeFleet, database: ObservedDatabase
) -> None:
    job_id, _ = report_stale_failure(fleet, database)

    database.wait_until(lambda: database.payments(job_id) == 2, "it was not paid twice")


def test_without_the_fence_a_stale_failure_report_gives_a_job_to_two_workers_at_once(
    database: ObservedDatabase,
) -> None:
    (stale,) = claimed(database.conn, worker="stale")
    expire(database.conn, stale)
    (second,) = run(database.conn, claim_as("second"))

    run(database.conn, protocol.fail(stale, error="late"))

    assert state_of(database.conn, second) == "queued"  # although a worker runs it
    (third,) = run(database.conn, claim_as("third"))
    for claim in (second, third):
        run(database.conn, protocol.commit(claim))
    assert database.count("FROM faultline.ledger") == 2
