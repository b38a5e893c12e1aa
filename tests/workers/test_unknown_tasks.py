"""A worker defers jobs of tasks that it does not know; another worker runs them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from faultline import Faultline, Job, JobState
from faultline.explanation import explain, situation_of
from faultline.metrics import Part, meter
from faultline.postgres.sessions import run_reads
from faultline.workers.unknown_tasks import UnknownTasks
from tests.running import Connection, EventTap, ended, value, work_off, working
from tests.waiting import wait_until


@pytest.fixture
def other(database_url: str) -> Iterator[Faultline]:
    """Another service on the same database."""
    application = Faultline(database_url)
    yield application
    application.close()


async def nothing(job: Job) -> None: ...


def test_two_services_that_share_a_queue_run_their_own_jobs_once_each(
    app: Faultline, other: Faultline
) -> None:
    mine, theirs = app.task(name="mine")(nothing), other.task(name="theirs")(nothing)
    jobs = [task.enqueue().job_id for _ in range(15) for task in (mine, theirs)]
    with working(app), working(other):
        records = [ended(app, job_id) for job_id in jobs]
    assert {record.state for record in records} == {JobState.SUCCEEDED}
    assert {record.attempts for record in records} == {1}


def test_a_job_of_an_unknown_task_is_deferred_once_and_uses_no_attempt(
    app: Faultline, conn: Connection, events: EventTap
) -> None:
    known = app.task(name="known")(nothing)
    job_id = value(conn, "SELECT job_id FROM faultline.enqueue('unheard_of', max_attempts => 1)")
    meter.switch_on(Part.WORKER)
    try:
        with working(app):
            wait_until(lambda: events.of("jobs_deferred"), "the deferral")
            for _ in range(3):
                assert ended(app, known.enqueue().job_id).state is JobState.SUCCEEDED
            counted = meter.current.exposition().decode()
    finally:
        meter.switch_off()

    record = app.get(job_id)
    assert (record.state, record.attempts, record.fencing_token) == (JobState.QUEUED, 0, 1)
    (event,) = events.of("jobs_deferred")
    assert (event["task"], event["jobs"], event["job_id"]) == ("unheard_of", 1, str(job_id))
    assert re.search(
        r'^faultline_jobs_deferred_total\{queue="default"\} 1\.0$', counted, re.MULTILINE
    )
    situation = run_reads(conn, situation_of(job_id))
    assert situation is not None
    why = explain(situation)
    assert why.code == "unknown_task"
    assert "knows task unheard_of" in why.answer


def test_a_deferred_job_is_run_at_once_by_a_worker_that_knows_its_task(
    app: Faultline, other: Faultline, conn: Connection, events: EventTap
) -> None:
    job_id = other.task(name="theirs")(nothing).enqueue().job_id
    app.task(name="mine")(nothing)
    with working(app):
        wait_until(lambda: events.of("jobs_deferred"), "the deferral")
    assert work_off(other, job_id).attempts == 1
    assert value(conn, "SELECT count(*) FROM faultline.deferred_jobs") == 0


def test_a_payload_that_does_not_fit_the_handler_is_a_failed_attempt(
    app: Faultline, conn: Connection
) -> None:
    app.task(name="known")(nothing)
    call = "SELECT job_id FROM faultline.enqueue('known', %s, max_attempts => 1)"
    record = work_off(app, value(conn, call, '{"surprise": 1}'))
    assert (record.state, record.failed_reason) == (JobState.FAILED, "attempts_spent")


def test_the_longer_a_task_is_unknown_the_longer_its_jobs_are_deferred() -> None:
    unknown = UnknownTasks()
    delays = [unknown.delay_seconds("task", now) for now in (0.0, 10.0, 100.0, 1e6)]
    assert delays == [60.0, 60.0, 200.0, 3600.0]


def test_deferrals_of_a_task_are_reported_once_a_minute() -> None:
    unknown = UnknownTasks()
    assert [unknown.jobs_to_report("task", 5, now) for now in (0.0, 1.0, 59.0, 61.0)] == [
        5,
        0,
        0,
        15,
    ]


def test_a_task_that_a_child_process_does_not_know_is_not_claimed_for_a_minute() -> None:
    unknown = UnknownTasks()
    assert unknown.runnable(["one", "two"], 0.0) == "{one,two}"
    unknown.missing("two", 0.0)
    assert unknown.runnable(["one", "two"], 59.0) == "{one}"
    assert unknown.runnable(["one", "two"], 61.0) == "{one,two}"
