"""job.commit(conn): the success as the last statement of the user's transaction."""

from __future__ import annotations

import contextlib

import psycopg
import pytest

from faultline import Faultline, Job, JobState, RetryPolicy
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

QUICK = RetryPolicy(base_seconds=0.01, cap_seconds=0.02)
WRITE = "INSERT INTO effects VALUES ('written')"
TOGETHER = (
    "SELECT e.xmin = l.xmin AND l.xmin = j.xmin"
    " FROM effects AS e, faultline.ledger AS l, faultline.jobs AS j"
)


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_the_users_own_transaction_commits_the_job(
    app: Faultline,
    conn: Connection,
    effects: str,
    database_url: str,
    events: EventTap,
    colour: str,
) -> None:
    @app.task(name="async")
    async def on_loop(job: Job) -> None:
        async with await psycopg.AsyncConnection.connect(database_url) as own:
            await own.execute(WRITE)
            await job.commit(own, result={"rows": 1})

    @app.task(name="plain")
    def in_thread(job: Job) -> None:
        with psycopg.connect(database_url) as own:
            own.execute(WRITE)
            job.commit(own, result={"rows": 1})

    record = work_off(app, app.find_task(colour).enqueue().job_id)
    assert (record.state, record.attempts, record.result) == (JobState.SUCCEEDED, 1, {"rows": 1})
    assert value(conn, TOGETHER) is True
    assert len(events.of("commit_ok")) == 1
    assert events.of("commit_unknown") == []  # all went well: nothing to warn of


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_rollback_after_commit_fails_the_attempt_and_the_next_one_commits(
    app: Faultline, conn: Connection, effects: str, database_url: str, colour: str
) -> None:
    @app.task(name="async", retry=QUICK)
    async def on_loop(job: Job) -> None:
        async with await psycopg.AsyncConnection.connect(database_url) as own:
            await own.execute(WRITE)
            await job.commit(own)
            if job.attempt == 1:
                await own.rollback()

    @app.task(name="plain", retry=QUICK)
    def in_thread(job: Job) -> None:
        with psycopg.connect(database_url) as own:
            own.execute(WRITE)
            job.commit(own)
            if job.attempt == 1:
                own.rollback()

    record = work_off(app, app.find_task(colour).enqueue().job_id)
    assert (record.state, record.attempts) == (JobState.SUCCEEDED, 2)
    assert count(conn, effects) == 1
    log = "SELECT outcome, split_part(error, ':', 1) FROM faultline.attempts_log"
    assert conn.execute(log).fetchall() == [("failed", "NotCommitted")]


def test_an_exception_between_commit_and_the_users_commit_fails_the_attempt(
    app: Faultline, conn: Connection, effects: str, database_url: str
) -> None:
    @app.task(max_attempts=1)
    async def unlucky(job: Job) -> None:
        async with await psycopg.AsyncConnection.connect(database_url) as own:
            await own.execute(WRITE)
            await job.commit(own)
            raise ValueError("at the last moment")

    record = work_off(app, unlucky.enqueue().job_id)
    assert record.state is JobState.FAILED
    assert "ValueError: at the last moment" in str(record.last_error)
    assert (count(conn, effects), count(conn, "faultline.ledger")) == (0, 0)


def test_an_error_after_the_users_commit_leaves_the_job_succeeded(
    app: Faultline, conn: Connection, effects: str, database_url: str
) -> None:
    @app.task()
    async def unlucky(job: Job) -> None:
        async with await psycopg.AsyncConnection.connect(database_url) as own:
            await own.execute(WRITE)
            await job.commit(own)
        raise ValueError("too late")

    record = work_off(app, unlucky.enqueue().job_id)
    assert (record.state, record.attempts) == (JobState.SUCCEEDED, 1)
    assert count(conn, effects) == 1


def test_a_session_that_dies_after_its_commit_was_answered_changes_nothing(
    app: Faultline, conn: Connection, effects: str, database_url: str
) -> None:
    @app.task()
    async def unlucky(job: Job) -> None:
        own = await psycopg.AsyncConnection.connect(database_url)
        try:
            await own.execute(WRITE)
            await job.commit(own)
            await own.commit()
            conn.execute("SELECT pg_terminate_backend(%s)", [own.info.backend_pid])
            await own.execute("SELECT 1")
        finally:
            await own.close()

    record = work_off(app, unlucky.enqueue().job_id)
    assert (record.state, record.attempts) == (JobState.SUCCEEDED, 1)
    assert count(conn, effects) == 1


def test_a_commit_that_was_never_awaited_is_a_failed_attempt(
    app: Faultline, database_url: str
) -> None:
    @app.task(max_attempts=1)
    async def forgetful(job: Job) -> None:
        async with await psycopg.AsyncConnection.connect(database_url) as own:
            never = job.commit(own)
        never.close()  # type: ignore[attr-defined]  # which is what Python does, with a warning

    record = work_off(app, forgetful.enqueue().job_id)
    assert record.state is JobState.FAILED
    assert "NotCommitted" in str(record.last_error)


def test_committing_twice_in_two_transactions_counts_once(
    app: Faultline, conn: Connection, effects: str, database_url: str
) -> None:
    @app.task()
    async def twice(job: Job) -> None:
        for _ in range(2):
            async with await psycopg.AsyncConnection.connect(database_url) as own:
                await own.execute(WRITE)
                await job.commit(own)

    record = work_off(app, twice.enqueue().job_id)
    assert (record.state, record.attempts) == (JobState.SUCCEEDED, 1)
    assert count(conn, effects) == 1
    assert rejections(conn, record.id) == []


def test_committing_twice_in_one_transaction_is_a_failed_attempt(
    app: Faultline, conn: Connection, effects: str, database_url: str
) -> None:
    @app.task(retry=QUICK)
    async def twice(job: Job) -> None:
        async with await psycopg.AsyncConnection.connect(database_url) as own:
            await own.execute(WRITE)
            for _ in range(2 if job.attempt == 1 else 1):
                await job.commit(own)

    record = work_off(app, twice.enqueue().job_id)
    assert (record.state, record.attempts) == (JobState.SUCCEEDED, 2)
    assert count(conn, effects) == 1


def test_a_swallowed_refusal_does_not_let_the_users_transaction_commit(
    app: Faultline, conn: Connection, effects: str, database_url: str
) -> None:
    @app.task(name="plain")
    def deaf(job: Job) -> None:
        take_over(conn, job.id)
        with psycopg.connect(database_url) as own:
            own.execute(WRITE)
            with contextlib.suppress(Exception):
                job.commit(own)
            own.commit()

    job_id = deaf.enqueue().job_id
    with working(app, self_fencing=False):
        wait_until(lambda: rejections(conn, job_id))
    assert rejections(conn, job_id) == [(1, 2, "token_mismatch")]
    assert (count(conn, effects), count(conn, "faultline.ledger")) == (0, 0)


@pytest.mark.parametrize("name", ["commit", "expect_commit", "assert_fence"])
def test_a_connection_in_autocommit_mode_is_refused_with_the_reason(
    app: Faultline, database_url: str, name: str
) -> None:
    @app.task(max_attempts=1)
    def handler(job: Job) -> None:
        with psycopg.connect(database_url, autocommit=True) as own:
            getattr(job, name)(own)

    record = work_off(app, handler.enqueue().job_id)
    assert record.state is JobState.FAILED
    assert f"job.{name}(conn) on a connection in autocommit mode" in str(record.last_error)
