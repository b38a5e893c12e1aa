"""A failure is reported late, and believed: a job that is done, or under way, is queued once more."""

from __future__ import annotations

import pytest

from faultline.postgres.sessions import run
from faultline.statements import protocol
from tests.failure_modes.crew import Crew
from tests.failure_modes.late_report import report_late
from tests.processes.stage import Stage
from tests.races.stepper import claim_as, claimed, expire, state_of

pytestmark = pytest.mark.usefixtures("without_fence")


def test_without_the_fence_a_late_failure_report_repeats_a_job_that_was_done(
    crew: Crew, stage: Stage
) -> None:
    job_id, _ = report_late(crew, stage)

    stage.wait_until(lambda: stage.payments(job_id) == 2, "it was not paid twice")


def test_without_the_fence_a_late_failure_report_gives_a_job_to_two_workers_at_once(
    stage: Stage,
) -> None:
    (stale,) = claimed(stage.conn, worker="stale")
    expire(stage.conn, stale)
    (second,) = run(stage.conn, claim_as("second"))

    run(stage.conn, protocol.fail(stale, error="late"))

    assert state_of(stage.conn, second) == "queued"  # while it is being worked on
    (third,) = run(stage.conn, claim_as("third"))
    for claim in (second, third):
        run(stage.conn, protocol.commit(claim))
    assert stage.count("FROM faultline.ledger") == 2
