"""Snooze, Retry and retry rules by exception in child processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from faultline import Faultline, JobRecord, JobState
from tests.children import jobs
from tests.running import Connection, EventTap, count, value, working
from tests.waiting import wait_until


@pytest.fixture
def app(
    database_url: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Faultline]:
    monkeypatch.setenv("DATABASE_URL", database_url)
    conn.execute("CREATE TABLE effects (job_id uuid, amount int)")
    yield jobs.app
    jobs.app.close()


def run_once(app: Faultline, conn: Connection, request: str, number: float = 600) -> JobRecord:
    job_id = jobs.asks.enqueue(request=request, number=number).job_id
    with working(app):
        wait_until(lambda: app.get(job_id).claimed_at, "the claim")
        wait_until(lambda: app.get(job_id).state is not JobState.RUNNING, "the end of the attempt")
    return app.get(job_id)


def outcome(conn: Connection) -> tuple[Any, ...] | None:
    return conn.execute("SELECT outcome, error FROM faultline.attempts_log").fetchone()


WAIT = "SELECT extract(epoch FROM next_run_at - clock_timestamp()) FROM faultline.jobs"


@pytest.mark.parametrize("request_", ["snooze", "until"])
def test_a_child_snoozes_its_job(app: Faultline, conn: Connection, request_: str) -> None:
    record = run_once(app, conn, request_)
    assert (record.state, record.attempts) == (JobState.QUEUED, 0)
    assert 400 < value(conn, WAIT) <= 600
    reason = "from the child" if request_ == "snooze" else None
    assert outcome(conn) == ("snoozed", reason)


def test_a_snooze_in_a_childs_transaction_rolls_it_back(app: Faultline, conn: Connection) -> None:
    record = run_once(app, conn, "snooze_in_transaction")
    assert (record.state, record.attempts) == (JobState.QUEUED, 0)
    assert count(conn, "effects") == 0


def test_a_snooze_after_a_childs_commit_is_an_error_that_says_so(
    app: Faultline, conn: Connection, events: EventTap
) -> None:
    assert run_once(app, conn, "snooze_after_commit").state is JobState.SUCCEEDED
    assert count(conn, "effects") == 1
    [event] = events.of("handler_error_after_commit")
    assert "after it had committed its job" in event["error"]


def test_a_child_sets_the_delay_of_its_next_attempt(
    app: Faultline, conn: Connection, events: EventTap
) -> None:
    record = run_once(app, conn, "retry")
    assert (record.state, record.attempts) == (JobState.QUEUED, 1)
    assert [e["retry_in_seconds"] for e in events.of("job_retry_scheduled")] == [600]
    assert "from the child" in (record.last_error or "")


def test_the_child_applies_the_rules_to_an_exception_that_cannot_be_pickled(
    app: Faultline, conn: Connection, events: EventTap
) -> None:
    record = run_once(app, conn, "unpicklable")
    assert (record.state, record.attempts) == (JobState.QUEUED, 1)
    assert [e["retry_in_seconds"] for e in events.of("job_retry_scheduled")] == [777]


@pytest.mark.parametrize("request_", ["give_up", "group"])
def test_a_childs_error_to_give_up_on_fails_the_job_at_once(
    app: Faultline, conn: Connection, request_: str
) -> None:
    record = run_once(app, conn, request_)
    assert (record.state, record.failed_reason) == (JobState.FAILED, "gave_up")
    assert "GivesUp: cannot be pickled" in (record.last_error or "")


def test_a_process_that_died_is_no_error_to_give_up_on(app: Faultline, conn: Connection) -> None:
    job_id = jobs.dies.enqueue().job_id
    with working(app):
        wait_until(lambda: outcome(conn), "the end of the attempt")
    record = app.get(job_id)
    assert (record.state, record.attempts) == (JobState.QUEUED, 1)
