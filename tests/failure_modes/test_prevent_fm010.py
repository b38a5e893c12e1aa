"""Fifty submissions with one key create one job, and all get its id."""

from __future__ import annotations

import pytest

from faultline import IdempotencyConflict
from faultline.postgres.sessions import run
from tests.failure_modes.submissions import SUBMITTERS, submission, submit_at_once
from tests.processes.observed_database import ObservedDatabase
from tests.races.stepper import Connect


def test_fifty_concurrent_submissions_with_one_key_create_one_job(
    database: ObservedDatabase, connect: Connect
) -> None:
    answers = submit_at_once(database, connect)

    assert len(answers) == SUBMITTERS
    assert len({answer.job_id for answer in answers}) == 1
    assert sum(not answer.existing for answer in answers) == 1
    assert database.count("FROM faultline.jobs") == 1


def test_the_same_key_with_another_payload_is_refused_and_names_the_existing_job(
    database: ObservedDatabase,
) -> None:
    first = run(database.conn, submission())

    with pytest.raises(IdempotencyConflict) as refused:
        run(database.conn, submission(amount=2))

    assert refused.value.job_id == str(first.job_id)
    assert database.count("FROM faultline.jobs") == 1
