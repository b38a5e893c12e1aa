"""The holder can report the failure that the stale worker was refused, once."""

from __future__ import annotations

import pytest

from faultline import StaleLease
from faultline.postgres.sessions import run
from faultline.statements import protocol
from tests.processes.observed_database import ObservedDatabase
from tests.races.stepper import claim_as, claimed, expire


def test_after_a_refused_report_the_holder_reports_its_own_failure_and_the_job_is_retried(
    database: ObservedDatabase,
) -> None:
    (stale,) = claimed(database.conn, worker="stale")
    expire(database.conn, stale)
    (second,) = run(database.conn, claim_as("second"))
    with pytest.raises(StaleLease):
        run(database.conn, protocol.fail(stale, error="late"))

    verdict = run(database.conn, protocol.fail(second, error="on time"))

    assert verdict.state == "queued"
    with pytest.raises(StaleLease, match="not_running"):  # only once
        run(database.conn, protocol.fail(second, error="again"))
    (third,) = run(database.conn, claim_as("third"))
    run(database.conn, protocol.commit(third))
    assert database.job(third.job_id)[:2] == ("succeeded", 3)
    assert database.outcomes(third.job_id) == ["expired", "failed"]
    database.assert_in_order()
