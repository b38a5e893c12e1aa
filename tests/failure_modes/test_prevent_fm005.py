"""A failure report is fenced like a commit: from a stale worker it changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from faultline import StaleLease
from faultline.model import Claim
from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline.statements.statement import Statement
from tests.failure_modes.crew import Crew
from tests.failure_modes.late_report import report_late
from tests.processes.stage import Stage
from tests.races.stepper import claim_as, claimed, expire, state_of


def test_a_late_failure_report_of_a_job_that_was_done_is_refused_and_recorded(
    crew: Crew, stage: Stage
) -> None:
    job_id, stale = report_late(crew, stage)

    blocked = stale.wait_for_event("stale_write_blocked", job_id=job_id, stale_token=1)
    assert (blocked["reason"], blocked["current_token"]) == ("token_mismatch", 2)
    assert stage.job(job_id)[:2] == ("succeeded", 2)
    assert stage.payments(job_id) == 1
    assert stage.count("FROM faultline.rejections WHERE job_id = %s", [job_id]) == 1
    stage.assert_in_order()


@pytest.mark.parametrize(
    "late_report",
    [lambda stale: protocol.fail(stale, error="late"), protocol.release],
    ids=["failure", "release"],
)
def test_a_late_report_does_not_take_the_job_from_the_worker_that_has_it(
    stage: Stage, late_report: Callable[[Claim], Statement[Any]]
) -> None:
    (stale,) = claimed(stage.conn, worker="stale")
    expire(stage.conn, stale)
    (second,) = run(stage.conn, claim_as("second"))

    with pytest.raises(StaleLease, match="token_mismatch"):
        run(stage.conn, late_report(stale))

    assert state_of(stage.conn, second) == "running"
    assert run(stage.conn, claim_as("third")) == []
    run(stage.conn, protocol.commit(second))
    assert stage.job(second.job_id) == ("succeeded", 2, None, 2)
    stage.assert_in_order()
