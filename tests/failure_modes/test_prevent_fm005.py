"""Failure reports are fenced like commits: a stale worker's changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from faultline import StaleLease
from faultline.model import Claim
from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline.statements.statement import Statement
from tests.failure_modes.failure_mode_fleet import FailureModeFleet
from tests.failure_modes.stale_failure import report_stale_failure
from tests.processes.observed_database import ObservedDatabase
from tests.races.stepper import claim_as, claimed, expire, state_of


def test_a_stale_failure_report_of_a_finished_job_is_refused_and_recorded(
    fleet: FailureModeFleet, database: ObservedDatabase
) -> None:
    job_id, stale = report_stale_failure(fleet, database)

    blocked = stale.wait_for_event("stale_write_blocked", job_id=job_id, stale_token=1)
    assert (blocked["reason"], blocked["current_token"]) == ("token_mismatch", 2)
    assert database.job(job_id)[:2] == ("succeeded", 2)
    assert database.payments(job_id) == 1
    assert database.count("FROM faultline.rejections WHERE job_id = %s", [job_id]) == 1
    database.assert_in_order()


@pytest.mark.parametrize(
    "late_report",
    [lambda stale: protocol.fail(stale, error="late"), protocol.release],
    ids=["failure", "release"],
)
def test_a_stale_report_does_not_requeue_a_job_that_another_worker_runs(
    database: ObservedDatabase, late_report: Callable[[Claim], Statement[Any]]
) -> None:
    (stale,) = claimed(database.conn, worker="stale")
    expire(database.conn, stale)
    (second,) = run(database.conn, claim_as("second"))

    with pytest.raises(StaleLease, match="token_mismatch"):
        run(database.conn, late_report(stale))

    assert state_of(database.conn, second) == "running"
    assert run(database.conn, claim_as("third")) == []
    run(database.conn, protocol.commit(second))
    assert database.job(second.job_id) == ("succeeded", 2, None, 2)
    database.assert_in_order()
