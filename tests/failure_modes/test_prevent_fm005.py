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
from tests.processes.observed_database import ObservedDatabase
from tests.races.stepper import claim_as, claimed, expire, state_of


def test_a_late_failure_report_of_a_job_that_was_done_is_refused_and_recorded(
    crew: Crew, database: ObservedDatabase
) -> None:
    job_id, stale = report_late(crew, database)

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
def test_a_late_report_does_not_take_the_job_from_the_worker_that_has_it(
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
