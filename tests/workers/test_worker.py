"""The worker: which jobs it runs, in which order, how many at once, its records."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from faultline import Faultline, Job, JobState, Reject, RetryPolicy
from faultline.workers import Worker
from tests.running import (
    Connection,
    EventTap,
    ended,
    expire,
    value,
    wait_for_the_first_heartbeat,
    work_off,
    working,
)
from tests.waiting import LIMIT_SECONDS, wait_until

QUICK = RetryPolicy(base_seconds=0.01, cap_seconds=0.02)


def test_an_async_handler_runs_and_its_result_is_in_the_ledger(app: Faultline) -> None:
    @app.task()
    async def add(job: Job, a: int, b: int = 1) -> dict[str, int]:
        return {"sum": a + b}

    record = work_off(app, add.enqueue(a=2).job_id)
    assert (record.state, record.result, record.attempts) == (JobState.SUCCEEDED, {"sum": 3}, 1)


def test_a_plain_handler_runs_in_a_thread_and_its_result_is_in_the_ledger(app: Faultline) -> None:
    @app.task()
    def where(job: Job) -> str:
        return threading.current_thread().name

    record = work_off(app, where.enqueue().job_id)
    assert record.state is JobState.SUCCEEDED
    assert record.result.startswith("faultline-handler")


def test_a_handler_without_a_result_leaves_none(app: Faultline, conn: Connection) -> None:
    @app.task()
    async def nothing(job: Job) -> None: ...

    record = work_off(app, nothing.enqueue().job_id)
    assert record.result is None
    assert value(conn, "SELECT result IS NULL FROM faultline.ledger")


def test_a_failing_job_is_retried_until_it_succeeds(app: Faultline, conn: Connection) -> None:
    @app.task(retry=QUICK)
    async def flaky(job: Job) -> int:
        if job.attempt < 3:
            raise ValueError(f"attempt {job.attempt} failed")
        return job.attempt

    job_id = flaky.enqueue().job_id
    record = work_off(app, job_id, poll_seconds=3600)  # it knows by itself when to look again
    assert (record.state, record.attempts, record.result) == (JobState.SUCCEEDED, 3, 3)
    log = "SELECT outcome, split_part(error, chr(10), 1) FROM faultline.attempts_log ORDER BY id"
    assert conn.execute(log).fetchall() == [
        ("failed", "ValueError: attempt 1 failed"),
        ("failed", "ValueError: attempt 2 failed"),
    ]


def test_a_retry_waits_as_long_as_its_policy_says(app: Faultline, events: EventTap) -> None:
    @app.task(retry=RetryPolicy(base_seconds=3600, cap_seconds=3600, jitter=0))
    async def failing(job: Job) -> None:
        raise ValueError

    job_id = failing.enqueue().job_id
    with working(app):
        [event] = wait_until(lambda: events.of("job_retry_scheduled"))
    assert event["retry_in_seconds"] == 3600
    record = app.get(job_id)
    assert record.state is JobState.QUEUED
    assert record.next_run_at > datetime.now(UTC) + timedelta(minutes=55)


def test_a_job_whose_attempts_are_spent_fails_with_its_last_error(app: Faultline) -> None:
    @app.task(retry=QUICK, max_attempts=2)
    async def hopeless(job: Job) -> None:
        raise RuntimeError(f"no luck at attempt {job.attempt}")

    record = work_off(app, hopeless.enqueue().job_id)
    assert (record.state, record.failed_reason) == (JobState.FAILED, "attempts_spent")
    assert record.attempts == 2
    assert record.last_error is not None
    assert record.last_error.startswith("RuntimeError: no luck at attempt 2")
    assert "Traceback" in record.last_error


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_rejected_job_fails_at_once(app: Faultline, colour: str) -> None:
    @app.task(name="async")
    async def refuse(job: Job) -> None:
        raise Reject("this will never work")

    @app.task(name="plain")
    def refuse_plainly(job: Job) -> None:
        raise Reject("this will never work")

    record = work_off(app, app.find_task(colour).enqueue().job_id)
    assert (record.state, record.failed_reason) == (JobState.FAILED, "rejected")
    assert record.attempts == 1
    assert "this will never work" in str(record.last_error)


def test_the_more_urgent_job_runs_first(app: Faultline) -> None:
    order: list[str] = []

    @app.task()
    async def note(job: Job, name: str) -> None:
        order.append(name)

    for name, priority in [("last", 9), ("usual", 5), ("first", 0), ("soon", 4)]:
        note.options(priority=priority).enqueue(name=name)
    with working(app, concurrency=1, max_jobs=4) as worker:
        wait_until(lambda: not worker.is_alive)
    assert order == ["first", "soon", "usual", "last"]


def test_a_worker_claims_from_its_own_queues_only(app: Faultline) -> None:
    @app.task()
    async def idle(job: Job) -> str:
        return job.queue

    ours = [idle.options(queue=queue).enqueue().job_id for queue in ("red", "blue")]
    other = idle.options(queue="green").enqueue().job_id
    with working(app, queues=("red", "blue")):
        assert [ended(app, job_id).result for job_id in ours] == ["red", "blue"]
    assert app.get(other).state is JobState.QUEUED


def test_no_more_handlers_run_at_once_than_there_are_slots(
    app: Faultline, conn: Connection
) -> None:
    lock, running, most = threading.Lock(), 0, 0
    full, go = threading.Event(), threading.Event()

    @app.task()
    def count_in_and_out(job: Job) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == 3:
                full.set()
        assert go.wait(LIMIT_SECONDS)
        with lock:
            running -= 1

    jobs = count_in_and_out.enqueue_many([{}] * 12)
    with working(app, concurrency=3):
        assert full.wait(LIMIT_SECONDS)
        leased = "SELECT count(*) FROM faultline.jobs WHERE state = 'running'"
        assert value(conn, leased) == 3  # and it holds no leases that it cannot use
        go.set()
        for job in jobs:
            ended(app, job.job_id)
    assert most == 3


def test_a_notification_wakes_a_worker_that_hardly_polls(app: Faultline) -> None:
    @app.task()
    async def hello(job: Job) -> None: ...

    with working(app, poll_seconds=3600):
        for _ in range(3):  # the first may be found by the first look
            ended(app, hello.enqueue().job_id)


def test_a_worker_polls_without_notifications(app: Faultline, database_url: str) -> None:
    @app.task()
    async def hello(job: Job) -> None: ...

    with working(app, poll_seconds=0.1), psycopg.connect(database_url) as silent:
        silent.execute("SET faultline.notify = 'off'")
        for _ in range(3):
            job_id = hello.options(conn=silent).enqueue().job_id
            silent.commit()
            ended(app, job_id)


def test_a_job_for_later_waits_until_it_is_due(app: Faultline, conn: Connection) -> None:
    @app.task()
    async def hello(job: Job) -> None: ...

    later = hello.options(run_at=datetime.now(UTC) + timedelta(hours=1)).enqueue().job_id
    with working(app, poll_seconds=0.05):
        ended(app, hello.enqueue().job_id)
        assert app.get(later).state is JobState.QUEUED
        conn.execute("UPDATE faultline.jobs SET next_run_at = now() WHERE id = %s", [later])
        ended(app, later)


def test_a_job_whose_lease_is_not_renewed_is_run_by_another_worker(
    app: Faultline, conn: Connection
) -> None:
    @app.task()
    async def token(job: Job) -> int:
        return job.token

    job_id = token.enqueue().job_id
    conn.execute("SELECT faultline.claim('gone', '{default}', 1, '1 hour')")
    expire(conn, job_id)
    record = work_off(app, job_id)
    assert (record.state, record.attempts, record.result) == (JobState.SUCCEEDED, 2, 2)


def test_a_worker_exits_after_its_maximum_of_attempts(app: Faultline) -> None:
    @app.task(retry=QUICK)
    async def hello(job: Job) -> None:
        if job.attempt == 1:
            raise ValueError

    jobs = hello.enqueue_many([{}] * 5)
    with working(app, max_jobs=3, concurrency=2) as worker:
        wait_until(lambda: not worker.is_alive)
    assert worker.result is True
    assert sum(app.get(job.job_id).fencing_token for job in jobs) == 3


def test_a_worker_that_stops_leaves_neither_registration_nor_session(
    app: Faultline, conn: Connection
) -> None:
    @app.task()
    async def hello(job: Job) -> None:
        async with job.transaction():
            pass

    with working(app):
        wait_for_the_first_heartbeat(conn)  # a worker does not wait long for one when it leaves
        ended(app, hello.enqueue().job_id)
    assert value(conn, "SELECT count(*) FROM faultline.workers") == 0
    sessions = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name ~ '^faultline' AND application_name <> 'faultline producer'"
    )
    wait_until(lambda: value(conn, sessions) == 0, "the end of all sessions")


def test_a_missing_schema_is_an_error_at_the_start(empty_database_url: str) -> None:
    from faultline import SchemaMismatch
    from faultline.config import WorkerSettings
    from tests.running import Background

    left: set[asyncio.Task[Any]] = set()

    async def run() -> None:
        before = asyncio.all_tasks()
        try:
            await Worker(Faultline(empty_database_url), WorkerSettings()).run()
        finally:
            left.update(asyncio.all_tasks() - before)

    worker = Background(run)
    worker.start()
    worker.join()
    assert isinstance(worker.died_of, SchemaMismatch)
    assert "faultline migrate" in str(worker.died_of)
    assert not left  # its pool's tasks would go on for as long as the process does
