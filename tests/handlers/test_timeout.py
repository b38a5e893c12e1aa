"""timeout_seconds: an attempt that runs too long is ended, and its slot is freed."""

from __future__ import annotations

import asyncio
import threading

import psycopg
import pytest

from faultline import Faultline, InvalidInput, Job, JobState, RetryPolicy
from tests.running import Connection, EventTap, count, ended, work_off, working
from tests.waiting import LIMIT_SECONDS, block_thread, run_until_interrupted, wait_until

QUICK = RetryPolicy(base_seconds=0.01, cap_seconds=0.02)
TIME_TO_COMMIT = 2.0  # of handlers that have to have committed before their time is up


def test_an_async_handler_is_cancelled_when_its_time_is_up(app: Faultline) -> None:
    seen: list[str] = []

    @app.task(timeout=0.1, max_attempts=1)
    async def slow(job: Job) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    record = work_off(app, slow.enqueue().job_id)
    assert (record.state, record.failed_reason) == (JobState.FAILED, "attempts_spent")
    assert "AttemptTimeout" in str(record.last_error)
    assert "ran longer than 0.1 s" in str(record.last_error)
    assert seen == ["cancelled"]


def test_a_plain_handler_is_interrupted_when_its_time_is_up(app: Faultline) -> None:
    seen: list[str] = []

    @app.task(timeout=0.1, max_attempts=1)
    def slow(job: Job) -> None:
        try:
            run_until_interrupted()
        finally:
            seen.append("unwound")

    record = work_off(app, slow.enqueue().job_id)
    assert (record.state, record.failed_reason) == (JobState.FAILED, "attempts_spent")
    assert "ran longer than 0.1 s" in str(record.last_error)
    assert seen == ["unwound"]


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_handler_that_waits_for_the_database_is_ended_too(
    app: Faultline, conn: Connection, effects: str, colour: str
) -> None:
    @app.task(name="async", timeout=0.2, max_attempts=1)
    async def on_loop(job: Job) -> None:
        async with job.transaction() as tx:
            await tx.execute("INSERT INTO effects VALUES ('late')")
            await tx.execute("SELECT pg_sleep(3600)")

    @app.task(name="plain", timeout=0.2, max_attempts=1)
    def in_thread(job: Job) -> None:
        with job.transaction() as tx:
            tx.execute("INSERT INTO effects VALUES ('late')")
            tx.execute("SELECT pg_sleep(3600)")

    record = work_off(app, app.find_task(colour).enqueue().job_id)
    assert record.state is JobState.FAILED
    assert "ran longer than 0.2 s" in str(record.last_error)
    assert count(conn, effects) == 0


def test_a_timed_out_attempt_is_retried(app: Faultline) -> None:
    @app.task(timeout=0.1, retry=QUICK)
    async def slow_at_first(job: Job) -> int:
        if job.attempt == 1:
            await asyncio.Event().wait()
        return job.attempt

    assert work_off(app, slow_at_first.enqueue().job_id).result == 2


def test_a_handler_within_its_time_is_left_alone(app: Faultline) -> None:
    @app.task(timeout=3600)
    async def quick(job: Job) -> str:
        return "in time"

    assert work_off(app, quick.enqueue().job_id).result == "in time"


def test_a_thread_that_cannot_be_interrupted_keeps_its_slot(
    app: Faultline, conn: Connection
) -> None:
    """The job has ended, but its handler still runs: one more would exceed the limit."""
    go, in_the_way = threading.Event(), threading.Event()

    @app.task(timeout=0.1, max_attempts=1)
    def stuck(job: Job) -> None:
        while not go.is_set():
            try:
                in_the_way.set()
                go.wait(LIMIT_SECONDS)
            except BaseException:  # noqa: S112 - as stubborn as a C call
                continue

    @app.task()
    async def other(job: Job) -> None: ...

    job_id = stuck.enqueue().job_id
    with working(app, concurrency=1):
        assert in_the_way.wait(LIMIT_SECONDS)
        following = other.enqueue().job_id
        assert ended(app, job_id).state is JobState.FAILED
        assert app.get(following).state is JobState.QUEUED
        go.set()
        assert ended(app, following).state is JobState.SUCCEEDED


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_time_that_runs_out_after_the_commit_changes_nothing(
    app: Faultline, conn: Connection, effects: str, events: EventTap, colour: str
) -> None:
    @app.task(name="async", timeout=TIME_TO_COMMIT)
    async def on_loop(job: Job) -> None:
        async with job.transaction() as tx:
            await tx.execute("INSERT INTO effects VALUES ('in time')")
        await asyncio.Event().wait()

    @app.task(name="plain", timeout=TIME_TO_COMMIT)
    def in_thread(job: Job) -> None:
        with job.transaction() as tx:
            tx.execute("INSERT INTO effects VALUES ('in time')")
        block_thread(TIME_TO_COMMIT + 1.5)  # cannot be interrupted, and is abandoned

    job_id = app.find_task(colour).enqueue().job_id
    with working(app):
        record = ended(app, job_id)
        wait_until(lambda: events.of("worker_exit"))
    assert (record.state, record.attempts) == (JobState.SUCCEEDED, 1)
    assert [line["reason"] for line in events.of("worker_exit")] == ["success"]
    assert count(conn, effects) == 1


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_timeout_must_be_positive(app: Faultline, seconds: float) -> None:
    with pytest.raises(InvalidInput, match="timeout must be more than 0"):
        app.task(timeout=seconds)


@pytest.mark.parametrize("end", ["rollback", "commit"])
def test_a_handler_that_goes_on_after_its_own_transaction_is_ended_all_the_same(
    app: Faultline, end: str
) -> None:
    seen: list[str] = []

    @app.task(timeout=TIME_TO_COMMIT, max_attempts=1)
    async def lingers(job: Job) -> None:
        async with await psycopg.AsyncConnection.connect(app.database_url) as tx:
            await job.commit(tx)
            await (tx.rollback() if end == "rollback" else tx.commit())
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("ended")
            raise

    record = work_off(app, lingers.enqueue().job_id)
    expected = JobState.FAILED if end == "rollback" else JobState.SUCCEEDED
    assert record.state is expected
    wait_until(lambda: seen == ["ended"])


def test_a_handler_that_goes_on_after_a_committed_transaction_is_ended_all_the_same(
    app: Faultline,
) -> None:
    seen: list[str] = []

    @app.task(timeout=TIME_TO_COMMIT, max_attempts=1)
    async def lingers(job: Job) -> None:
        async with job.transaction():
            pass
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("ended")
            raise

    with working(app):
        job_id = lingers.enqueue().job_id
        wait_until(lambda: seen == ["ended"])
    assert app.get(job_id).state is JobState.SUCCEEDED
