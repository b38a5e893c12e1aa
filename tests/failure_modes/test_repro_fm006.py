"""A job that kills its worker never reports a failure that could be counted.

The missing guard is the count at the claim.
"""

from __future__ import annotations

import pytest

from tests.failure_modes.bare_worker import MAX_ATTEMPTS, expire_lease, run_one
from tests.failure_modes.conftest import Apply
from tests.processes.observed_database import ObservedDatabase
from tests.races.stepper import enqueued
from tests.stateful.mutants import ATTEMPTS_NOT_COUNTED


@pytest.mark.slow
def test_without_a_count_at_the_claim_a_poison_job_kills_one_worker_after_the_other(
    database: ObservedDatabase, database_url: str, apply: Apply
) -> None:
    apply(ATTEMPTS_NOT_COUNTED.sql())
    enqueued(database.conn, max_attempts=MAX_ATTEMPTS)

    for _ in range(MAX_ATTEMPTS + 1):
        assert run_one(database_url), "it claimed no job"
        expire_lease(database)

    query = "SELECT state, attempts, fencing_token FROM faultline.jobs"
    assert database.conn.execute(query).fetchone() == ("running", 0, MAX_ATTEMPTS + 1)
    assert run_one(database_url)  # without end
