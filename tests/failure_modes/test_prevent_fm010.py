"""Fifty submissions with one key are one job, and all fifty are told which."""

from __future__ import annotations

import pytest

from faultline import IdempotencyConflict
from faultline.postgres.sessions import run
from tests.failure_modes.submissions import SUBMITTERS, submission, submit_at_once
from tests.processes.observed_database import ObservedDatabase
from tests.races.stepper import Connect


def test_fifty_submissions_at_once_with_one_key_are_one_job(
    database: ObservedDatabase, connect: Connect
) -> None:
    answers = submit_at_once(database, connect)

    assert len(answers) == SUBMITTERS
    assert len({answer.job_id for answer in answers}) == 1
    assert sum(not answer.existing for answer in answers) == 1
    assert database.count("FROM faultline.jobs") == 1


def test_the_same_key_for_other_work_is_refused_and_names_the_job_that_has_it(
    database: ObservedDatabase,
) -> None:
    first = run(database.conn, submission())

    with pytest.raises(IdempotencyConflict) as refused:
        run(database.conn, submission(amount=2))

    assert refused.value.job_id == str(first.job_id)
    assert database.count("FROM faultline.jobs") == 1
