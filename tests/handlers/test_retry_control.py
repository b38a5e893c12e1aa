"""Snooze, Retry and give-up: a handler decides whether its job runs again."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from faultline import Faultline, Job, JobRecord, JobState, Reject, Retry, RetryPolicy, Snooze
from tests.running import (
    Connection,
    EventTap,
    count,
    rejections,
    take_over,
    value,
    work_off,
    working,
)
from tests.waiting import wait_until

KINDS = ["async", "plain"]


class InvalidCard(Exception):
    pass


class RateLimited(Exception):
    pass


def raising(app: Faultline, kind: str, error: Any, **options: Any) -> Any:
    """A task whose handler raises `error()`."""
    if kind == "plain":

        @app.task(name="plain", **options)
        def in_thread(job: Job) -> None:
            raise error()

        return in_thread

    @app.task(name="async", **options)
    async def on_loop(job: Job) -> None:
        raise error()

    return on_loop


def logged(conn: Connection, job_id: Any) -> list[tuple[Any, ...]]:
    query = (
        "SELECT attempt, outcome, error FROM faultline.attempts_log WHERE job_id = %s ORDER BY id"
    )
    return conn.execute(query, [job_id]).fetchall()


def run_until_logged(app: Faultline, conn: Connection, job_id: Any) -> JobRecord:
    with working(app):
        wait_until(lambda: logged(conn, job_id), "the end of the attempt")
        wait_until(lambda: app.get(job_id).state is not JobState.RUNNING, "the job's next state")
    return app.get(job_id)


@pytest.mark.parametrize("kind", KINDS)
def test_a_snooze_queues_the_job_again_and_uses_no_attempt(
    app: Faultline, conn: Connection, events: EventTap, kind: str
) -> None:
    task = raising(
        app, kind, lambda: Snooze(seconds=600, reason="the bank is closed"), max_attempts=1
    )
    job_id = task.enqueue().job_id
    record = run_until_logged(app, conn, job_id)
    assert (record.state, record.attempts, record.last_error) == (JobState.QUEUED, 0, None)
    wait = value(conn, "SELECT next_run_at - clock_timestamp() FROM faultline.jobs")
    assert timedelta(minutes=8) < wait <= timedelta(minutes=10)
    assert logged(conn, job_id) == [(1, "snoozed", "the bank is closed")]
    [event] = events.of("job_snoozed")
    assert (event["snoozes"], event["reason"]) == (1, "the bank is closed")
    assert events.of("job_dead") == events.of("job_retry_scheduled") == []


def test_a_snooze_until_a_moment_is_due_then_by_the_databases_clock(
    app: Faultline, conn: Connection
) -> None:
    moment = datetime.now(UTC).replace(microsecond=0) + timedelta(days=200)
    job_id = raising(app, "async", lambda: Snooze(until=moment)).enqueue().job_id
    due = run_until_logged(app, conn, job_id).next_run_at
    assert abs(due - moment) < timedelta(seconds=1)  # across a change of the clocks in most zones


def test_a_snoozed_job_runs_again_when_it_is_due(app: Faultline) -> None:
    runs: list[int] = []

    @app.task()
    async def asks_twice(job: Job) -> int:
        runs.append(job.attempt)
        if len(runs) < 3:
            raise Snooze(seconds=1)
        return len(runs)

    record = work_off(app, asks_twice.enqueue().job_id)
    assert (record.state, record.result, record.attempts, runs) == (
        JobState.SUCCEEDED,
        3,
        1,
        [1, 1, 1],
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_snooze_inside_a_transaction_rolls_it_back(
    app: Faultline, conn: Connection, effects: str, kind: str
) -> None:
    @app.task(name="plain")
    def in_thread(job: Job) -> None:
        with job.transaction() as tx:
            tx.execute("INSERT INTO effects VALUES ('written')")
            raise Snooze(seconds=600)

    @app.task(name="async")
    async def on_loop(job: Job) -> None:
        async with job.transaction() as tx:
            await tx.execute("INSERT INTO effects VALUES ('written')")
            raise Snooze(seconds=600)

    job_id = app.find_task(kind).enqueue().job_id
    record = run_until_logged(app, conn, job_id)
    assert (record.state, record.attempts) == (JobState.QUEUED, 0)
    assert count(conn, "effects") == count(conn, "faultline.ledger") == 0


def test_writes_of_a_fenced_step_stay_when_the_job_is_snoozed(
    app: Faultline, conn: Connection, effects: str
) -> None:
    @app.task()
    def steps(job: Job) -> None:
        with job.fenced() as tx:
            tx.execute("INSERT INTO effects VALUES ('step')")
        raise Snooze(seconds=600)

    run_until_logged(app, conn, steps.enqueue().job_id)
    assert count(conn, "effects") == 1


@pytest.mark.parametrize("request_", [lambda: Snooze(1), lambda: Retry(1)])
def test_a_request_after_the_commit_is_an_error_that_says_so(
    app: Faultline, conn: Connection, effects: str, events: EventTap, request_: Any
) -> None:
    @app.task()
    def too_late(job: Job) -> None:
        with job.transaction() as tx:
            tx.execute("INSERT INTO effects VALUES ('written')")
        raise request_()

    record = work_off(app, too_late.enqueue().job_id)
    assert record.state is JobState.SUCCEEDED
    assert count(conn, "effects") == 1
    [event] = events.of("handler_error_after_commit")
    assert "after it had committed its job" in event["error"]
    assert events.of("job_snoozed") == []


def test_a_snooze_after_the_commit_of_an_own_transaction_is_too_late_as_well(
    app: Faultline, conn: Connection, database_url: str, events: EventTap
) -> None:
    @app.task()
    def own(job: Job) -> None:
        with psycopg.connect(database_url) as mine:
            job.commit(mine)
        raise Snooze(1)

    assert work_off(app, own.enqueue().job_id).state is JobState.SUCCEEDED
    [event] = events.of("handler_error_after_commit")
    assert "after it had committed its job" in event["error"]


def test_a_snooze_before_the_commit_of_an_own_transaction_snoozes(
    app: Faultline, conn: Connection, database_url: str
) -> None:
    @app.task()
    def own(job: Job) -> None:
        with psycopg.connect(database_url) as mine:
            job.commit(mine)
            raise Snooze(600)

    job_id = own.enqueue().job_id
    record = run_until_logged(app, conn, job_id)
    assert (record.state, record.attempts) == (JobState.QUEUED, 0)
    assert logged(conn, job_id) == [(1, "snoozed", None)]


def test_a_stale_worker_cannot_snooze(app: Faultline, conn: Connection) -> None:
    @app.task()
    def late(job: Job) -> None:
        take_over(conn, job.id)
        raise Snooze(1)

    job_id = late.enqueue().job_id
    with working(app, self_fencing=False):
        wait_until(lambda: rejections(conn, job_id), "the refusal")
    assert rejections(conn, job_id) == [(1, 2, "token_mismatch")]
    assert app.get(job_id).state is JobState.RUNNING  # of the worker that took over


def test_a_snooze_alone_in_a_task_group_is_a_snooze(app: Faultline, conn: Connection) -> None:
    @app.task()
    async def grouped(job: Job) -> None:
        async def part() -> None:
            raise Snooze(seconds=600)

        async with asyncio.TaskGroup() as group:
            group.create_task(part())

    job_id = grouped.enqueue().job_id
    assert run_until_logged(app, conn, job_id).attempts == 0
    assert logged(conn, job_id) == [(1, "snoozed", None)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_retry_uses_an_attempt_and_waits_exactly(
    app: Faultline, conn: Connection, events: EventTap, kind: str
) -> None:
    task = raising(app, kind, lambda: Retry(after=600, reason="come back later"))
    job_id = task.enqueue().job_id
    record = run_until_logged(app, conn, job_id)
    assert (record.state, record.attempts) == (JobState.QUEUED, 1)
    assert "come back later" in (record.last_error or "")
    [event] = events.of("job_retry_scheduled")
    assert event["retry_in_seconds"] == 600


def test_a_retry_of_the_last_attempt_fails_the_job(app: Faultline) -> None:
    task = raising(app, "async", lambda: Retry(after=600), max_attempts=1)
    record = work_off(app, task.enqueue().job_id)
    assert (record.state, record.failed_reason) == (JobState.FAILED, "attempts_spent")


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_to_give_up_on_fails_the_job_at_once(
    app: Faultline, events: EventTap, kind: str
) -> None:
    dead: list[tuple[str | None, str]] = []

    @app.on_dead
    def note(record: JobRecord, error: Exception | None) -> None:
        dead.append((record.failed_reason, type(error).__name__))

    policy = RetryPolicy(give_up_on=(InvalidCard,))
    task = raising(app, kind, lambda: InvalidCard("expired in May"), retry=policy)
    job_id = task.enqueue().job_id
    with working(app):
        wait_until(lambda: dead, "the call of on_dead")
    record = app.get(job_id)
    assert (record.state, record.failed_reason, record.attempts) == (JobState.FAILED, "gave_up", 1)
    assert "InvalidCard: expired in May" in (record.last_error or "")
    assert dead == [("gave_up", "InvalidCard")]
    assert [event["reason"] for event in events.of("job_dead")] == ["gave_up"]


def test_the_delay_of_a_failure_depends_on_its_error(
    app: Faultline, conn: Connection, events: EventTap
) -> None:
    policy = RetryPolicy(on={RateLimited: [77, 99]})
    job_id = raising(app, "async", lambda: RateLimited("slow down"), retry=policy).enqueue().job_id
    run_until_logged(app, conn, job_id)
    assert [e["retry_in_seconds"] for e in events.of("job_retry_scheduled")] == [77]


def test_on_dead_is_called_for_failures_and_not_for_what_was_snoozed_or_cancelled(
    app: Faultline, conn: Connection, events: EventTap
) -> None:
    dead: dict[Any, tuple[str | None, str]] = {}

    @app.on_dead
    def note(record: JobRecord, error: Exception | None) -> None:
        dead[record.id] = (record.failed_reason, type(error).__name__)

    @app.task(max_attempts=1, retry=RetryPolicy(give_up_on=(InvalidCard,)))
    async def ends(job: Job, how: str) -> None:
        match how:
            case "snooze":
                raise Snooze(600)
            case "give up":
                raise InvalidCard("no")
            case "reject":
                raise Reject("no")
            case "retry":
                raise Retry(600)
            case "cancel":
                app.cancel(job.id)
                raise ValueError("too late")

    def enqueue(how: str, **options: Any) -> Any:
        return ends.options(**options).enqueue(how=how).job_id

    snoozed, expiring, cancelled = enqueue("snooze"), enqueue("snooze"), enqueue("cancel")
    expected = {
        enqueue("give up"): ("gave_up", "InvalidCard"),
        enqueue("reject"): ("rejected", "Reject"),
        enqueue("retry"): ("attempts_spent", "Retry"),
    }
    with working(app):
        wait_until(lambda: len(events.of("job_snoozed")) == 2, "the snoozes")
        conn.execute(
            "UPDATE faultline.jobs SET expires_at = clock_timestamp() WHERE id = %s", [expiring]
        )
        conn.execute("SELECT faultline.fail_expired()")  # as the leading reconciler does
        wait_until(lambda: app.get(cancelled).state is JobState.FAILED, "the cancellation")
        wait_until(lambda: len(dead) >= 3, "the calls of on_dead")
    assert dead == expected
    reasons = {app.get(job_id).failed_reason for job_id in (expiring, cancelled)}
    assert (reasons, app.get(snoozed).state) == ({"expired", "cancelled"}, JobState.QUEUED)


class BrokenPolicy(RetryPolicy):
    def decide(self, error: BaseException, attempt: int) -> Any:
        raise RuntimeError("the policy's own bug")


def test_a_job_whose_policy_fails_is_queued_again_at_once(
    app: Faultline, conn: Connection, events: EventTap
) -> None:
    """Otherwise it stays running until its lease ends, and the error is not kept."""
    fail = raising(app, "async", ValueError, retry=BrokenPolicy())
    job_id = fail.enqueue().job_id
    with working(app):
        wait_until(lambda: events.of("job_retry_scheduled"))
    record = app.get(job_id)
    assert (record.state, record.attempts) == (JobState.QUEUED, 1)
    assert record.last_error is not None
    assert record.last_error.startswith("ValueError")
    assert any("BrokenPolicy could not decide" in each["reason"] for each in events.of("degraded"))
