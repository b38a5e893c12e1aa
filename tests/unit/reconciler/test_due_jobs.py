"""When the leading reconciler looks for jobs whose time has come."""

from __future__ import annotations

import pytest

from faultline.config import LIVENESS_SECONDS
from faultline.reconciler.due_jobs import DueJobs
from faultline.statements.survey import Wake


def test_the_first_look_is_at_once_and_the_next_with_the_next_survey() -> None:
    due = DueJobs()
    assert due.is_time(0.0)
    due.note(Wake(0, None, 0.0), 10.0)
    assert not due.is_time(10.0)
    assert due.is_time(10.0 + LIVENESS_SECONDS)
    assert due.seconds_until_due(10.0) is None


def test_a_job_that_waits_for_its_time_is_looked_for_then() -> None:
    due = DueJobs()
    due.note(Wake(0, 0.5, 0.0), 10.0)
    assert due.seconds_until_due(10.2) == pytest.approx(0.3)


def test_workers_that_cannot_claim_a_due_job_are_told_ever_less_often() -> None:
    due = DueJobs()
    now, pauses = 0.0, []
    for _ in range(6):
        due.note(Wake(1, None, 0.0), now)
        pause = due.seconds_until_due(now)
        assert pause is not None
        pauses.append(round(pause, 3))
        now += pause
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    due.note(Wake(0, None, 0.0), now)
    due.note(Wake(1, None, 0.0), now)
    assert due.seconds_until_due(now) == pytest.approx(LIVENESS_SECONDS)


def test_looking_takes_at_most_a_twentieth_of_the_time() -> None:
    due = DueJobs()
    due.note(Wake(0, None, 0.5), 10.0)
    assert not due.is_time(19.9)
    assert due.is_time(20.0)
