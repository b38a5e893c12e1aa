"""A failure is reported late, and believed: a job that is done, or under way, is queued once more."""

from __future__ import annotations

import pytest

from faultline.postgres.sessions import run
from faultline.statements import protocol
from tests.failure_modes.crew import Crew
from tests.failure_modes.late_report import report_late
from tests.processes.observed_database import ObservedDatabase
from tests.races.stepper import claim_as, claimed, expire, state_of

pytestmark = pytest.mark.usefixtures("without_fence")


def test_without_the_fence_a_late_failure_report_repeats_a_job_that_was_done(
    crew: Crew, database: ObservedDatabase
) -> None:
    job_id, _ = report_late(crew, database)

    database.wait_until(lambda: database.payments(job_id) == 2, "it was not paid twice")


def test_without_the_fence_a_late_failure_report_gives_a_job_to_two_workers_at_once(
    database: ObservedDatabase,
) -> None:
    (stale,) = claimed(database.conn, worker="stale")
    expire(database.conn, stale)
    (second,) = run(database.conn, claim_as("second"))

    run(database.conn, protocol.fail(stale, error="late"))

    assert state_of(database.conn, second) == "queued"  # while it is being worked on
    (third,) = run(database.conn, claim_as("third"))
    for claim in (second, third):
        run(database.conn, protocol.commit(claim))
    assert database.count("FROM faultline.ledger") == 2
