"""The Job that a handler gets: identity, remaining time of the lease, commit."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from faultline import Faultline, InvalidInput, Job, JobState, RetryPolicy, StaleLease
from tests.running import (
    Connection,
    EventTap,
    count,
    ended,
    rejections,
    take_over,
    work_off,
    working,
)
from tests.waiting import wait_until

QUICK = RetryPolicy(base_seconds=0.01, cap_seconds=0.02)


def test_a_job_has_its_id_task_queue_and_token(app: Faultline) -> None:
    seen: list[Job] = []

    @app.task(name="who", queue="red", max_attempts=7)
    async def who(job: Job) -> None:
        seen.append(job)

    job_id = who.enqueue().job_id
    work_off(app, job_id, queues=("red",))
    [job] = seen
    assert (job.id, job.task, job.queue) == (job_id, "who", "red")
    assert (job.attempt, job.max_attempts, job.token) == (1, 7, 1)


def test_attempt_and_token_rise_and_the_idempotency_key_stays(app: Faultline) -> None:
    seen: list[tuple[int, int, str]] = []

    @app.task(retry=QUICK)
    async def flaky(job: Job) -> None:
        seen.append((job.attempt, job.token, job.effect_key))
        if job.attempt < 3:
            raise ValueError

    job_id = flaky.options(idempotency_key="the producer's own").enqueue().job_id
    work_off(app, job_id)
    assert seen == [(number, number, str(job_id)) for number in (1, 2, 3)]


def test_two_jobs_never_share_an_idempotency_key(app: Faultline) -> None:
    seen: list[str] = []

    @app.task()
    async def note(job: Job) -> None:
        seen.append(job.effect_key)

    for job in note.enqueue_many([{}, {}]):
        work_off(app, job.job_id)
    assert len(set(seen)) == 2


def test_the_lease_remaining_is_between_nothing_and_a_lease(app: Faultline) -> None:
    @app.task()
    async def look(job: Job) -> list[Any]:
        return [job.lease_remaining, job.lease_lost]

    record = work_off(app, look.enqueue().job_id, lease_seconds=9)
    remaining, lost = record.result
    assert 0 < remaining <= 9
    assert lost is False


def test_the_result_that_is_set_on_the_job_is_stored_with_its_transaction(app: Faultline) -> None:
    @app.task(name="async")
    async def on_loop(job: Job) -> None:
        async with job.transaction():
            job.result = {"answer": 42}

    @app.task(name="plain")
    def in_thread(job: Job) -> None:
        with job.transaction():
            job.result = {"answer": 42}

    for task in (on_loop, in_thread):
        assert work_off(app, task.enqueue().job_id).result == {"answer": 42}


def test_a_result_that_is_not_json_rolls_the_transaction_back(
    app: Faultline, conn: Connection, effects: str
) -> None:
    @app.task(max_attempts=1)
    async def odd(job: Job) -> None:
        async with job.transaction() as tx:
            await tx.execute("INSERT INTO effects VALUES ('written')")
            job.result = object()

    record = work_off(app, odd.enqueue().job_id)
    assert record.state is JobState.FAILED
    assert "result is an object, which JSON cannot hold" in str(record.last_error)
    assert count(conn, effects) == 0


def test_an_error_after_the_commit_leaves_the_job_succeeded(
    app: Faultline, conn: Connection, effects: str, events: EventTap
) -> None:
    @app.task(name="async")
    async def on_loop(job: Job) -> None:
        async with job.transaction() as tx:
            await tx.execute("INSERT INTO effects VALUES ('written')")
        raise ValueError("too late")

    @app.task(name="plain")
    def in_thread(job: Job) -> None:
        with job.transaction() as tx:
            tx.execute("INSERT INTO effects VALUES ('written')")
        raise ValueError("too late")

    for task in (on_loop, in_thread):
        record = work_off(app, task.enqueue().job_id)
        assert (record.state, record.attempts) == (JobState.SUCCEEDED, 1)
    assert count(conn, effects) == 2
    errors = [line["error"] for line in events.of("handler_error_after_commit")]
    assert len(errors) == 2
    assert all("ValueError: too late" in error for error in errors)


def test_a_second_transaction_of_one_job_is_refused_and_the_first_one_stands(
    app: Faultline, conn: Connection, effects: str
) -> None:
    refused: list[StaleLease] = []

    @app.task()
    async def twice(job: Job) -> None:
        async with job.transaction() as tx:
            await tx.execute("INSERT INTO effects VALUES ('first')")
        try:
            async with job.transaction() as tx:
                await tx.execute("INSERT INTO effects VALUES ('second')")
        except StaleLease as error:
            refused.append(error)
            raise

    record = work_off(app, twice.enqueue().job_id)
    assert (record.state, record.attempts) == (JobState.SUCCEEDED, 1)
    assert [error.reason for error in refused] == ["already_committed"]
    assert conn.execute("SELECT note FROM effects").fetchall() == [("first",)]
    assert rejections(conn, record.id) == []


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_stale_handler_gets_the_reason_and_its_refusal_is_recorded(
    app: Faultline, conn: Connection, effects: str, events: EventTap, colour: str
) -> None:
    refused: list[StaleLease] = []

    @app.task(name="async")
    async def on_loop(job: Job) -> None:
        take_over(conn, job.id)
        try:
            async with job.transaction() as tx:
                await tx.execute("INSERT INTO effects VALUES ('stale')")
        except StaleLease as error:
            refused.append(error)
            raise

    @app.task(name="plain")
    def in_thread(job: Job) -> None:
        take_over(conn, job.id)
        try:
            with job.transaction() as tx:
                tx.execute("INSERT INTO effects VALUES ('stale')")
        except StaleLease as error:
            refused.append(error)
            raise

    job_id = app.find_task(colour).enqueue().job_id
    with working(app, self_fencing=False):
        wait_until(lambda: rejections(conn, job_id))
        wait_until(lambda: [e for e in events.of("worker_exit") if e["reason"] == "stale"])
    [error] = refused
    assert (error.reason, error.stale_token, error.current_token) == ("token_mismatch", 1, 2)
    assert error.job_id == str(job_id)
    assert rejections(conn, job_id) == [(1, 2, "token_mismatch")]
    assert count(conn, effects) == 0
    assert app.get(job_id).lease_owner == "usurper"


def test_async_with_in_a_plain_handler_is_a_clear_error(app: Faultline) -> None:
    @app.task(max_attempts=1)
    def confused(job: Job) -> None:
        async def inner() -> None:
            async with job.transaction():
                pass

        asyncio.run(inner())

    record = work_off(app, confused.enqueue().job_id)
    assert "InvalidInput: this handler is a plain function: use `with`" in str(record.last_error)


def test_with_in_an_async_handler_is_a_clear_error(app: Faultline) -> None:
    @app.task(max_attempts=1)
    async def confused(job: Job) -> None:
        with job.transaction():
            pass

    record = work_off(app, confused.enqueue().job_id)
    assert record.state is JobState.FAILED
    assert "use `async with`" in str(record.last_error)


def test_a_sync_connection_in_async_code_and_vice_versa_is_a_clear_error(
    app: Faultline, database_url: str, conn: Connection
) -> None:
    errors: list[str] = []

    @app.task()
    async def confused(job: Job) -> None:
        async with await psycopg.AsyncConnection.connect(database_url) as aconn:
            try:
                with job.fenced(aconn):
                    pass
            except InvalidInput as error:
                errors.append(str(error))
        try:
            async with job.fenced(conn):
                pass
        except InvalidInput as error:
            errors.append(str(error))

    with working(app):
        ended(app, confused.enqueue().job_id)
    assert errors == [
        "this connection is async: use `async with`",
        "this connection is not async: use `with`",
    ]
