"""job.fenced() and job.assert_fence(): fenced writes in the middle of a job."""

from __future__ import annotations

import psycopg
import pytest

from faultline import Faultline, Job, JobState, StaleLease
from tests.running import Connection, count, ended, rejections, take_over, work_off, working
from tests.waiting import wait_until

WRITE = "INSERT INTO effects VALUES ('written')"


@pytest.mark.parametrize("own_connection", [False, True])
@pytest.mark.parametrize("colour", ["async", "plain"])
def test_fenced_writes_stay_even_if_the_job_fails_later(
    app: Faultline,
    conn: Connection,
    effects: str,
    database_url: str,
    colour: str,
    own_connection: bool,
) -> None:
    @app.task(name="async", max_attempts=1)
    async def on_loop(job: Job) -> None:
        async with await psycopg.AsyncConnection.connect(database_url) as own:
            async with job.fenced(own if own_connection else None) as tx:
                await tx.execute(WRITE)
            raise ValueError("later")

    @app.task(name="plain", max_attempts=1)
    def in_thread(job: Job) -> None:
        with psycopg.connect(database_url) as own:
            with job.fenced(own if own_connection else None) as tx:
                tx.execute(WRITE)
            raise ValueError("later")

    record = work_off(app, app.find_task(colour).enqueue().job_id)
    assert record.state is JobState.FAILED
    assert "ValueError: later" in str(record.last_error)
    assert count(conn, effects) == 1


def test_the_job_goes_on_after_fenced_writes(
    app: Faultline, conn: Connection, effects: str
) -> None:
    @app.task()
    async def in_steps(job: Job) -> str:
        for _ in range(3):
            async with job.fenced() as tx:
                await tx.execute(WRITE)
        return "done"

    record = work_off(app, in_steps.enqueue().job_id)
    assert (record.state, record.result) == (JobState.SUCCEEDED, "done")
    assert count(conn, effects) == 3


def test_an_exception_inside_a_fenced_block_rolls_its_writes_back(
    app: Faultline, conn: Connection, effects: str
) -> None:
    @app.task()
    async def careful(job: Job) -> None:
        try:
            async with job.fenced() as tx:
                await tx.execute(WRITE)
                raise KeyError
        except KeyError:
            pass
        async with job.fenced() as tx:
            await tx.execute(WRITE)
            raise psycopg.Rollback  # asked for, so no error

    record = work_off(app, careful.enqueue().job_id)
    assert record.state is JobState.SUCCEEDED
    assert count(conn, effects) == 0


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_stale_handler_writes_nothing_in_a_fenced_block(
    app: Faultline, conn: Connection, effects: str, colour: str
) -> None:
    reached: list[str] = []

    @app.task(name="async")
    async def on_loop(job: Job) -> None:
        take_over(conn, job.id)
        async with job.fenced() as tx:
            reached.append("inside")
            await tx.execute(WRITE)

    @app.task(name="plain")
    def in_thread(job: Job) -> None:
        take_over(conn, job.id)
        with job.fenced() as tx:
            reached.append("inside")
            tx.execute(WRITE)

    job_id = app.find_task(colour).enqueue().job_id
    with working(app, self_fencing=False):
        wait_until(lambda: rejections(conn, job_id))
    assert rejections(conn, job_id) == [(1, 2, "token_mismatch")]
    assert (reached, count(conn, effects)) == ([], 0)


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_assert_fence_keeps_others_from_taking_the_job_until_the_transaction_ends(
    app: Faultline, conn: Connection, database_url: str, colour: str
) -> None:
    """A lease that runs out meanwhile is left alone by claim and reconcile alike."""
    steal = (
        "SELECT count(*) FROM faultline.reconcile(100, '{}', '{}')"
        " UNION ALL SELECT count(*) FROM faultline.claim('thief', '{default}')"
    )

    def stolen(job: Job) -> list[int]:
        with psycopg.connect(database_url, autocommit=True) as thief:
            thief.execute(
                "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() WHERE id = %s",
                [job.id],
            )
            return [row[0] for row in thief.execute(steal).fetchall()]

    @app.task(name="async")
    async def on_loop(job: Job) -> list[int]:
        async with await psycopg.AsyncConnection.connect(database_url) as own:
            await job.assert_fence(own)
            loot = stolen(job)
            await own.execute("UPDATE faultline.jobs SET lease_expires_at = now() + '1 hour'")
        return loot

    @app.task(name="plain")
    def in_thread(job: Job) -> list[int]:
        with psycopg.connect(database_url) as own:
            job.assert_fence(own)
            loot = stolen(job)
            own.execute("UPDATE faultline.jobs SET lease_expires_at = now() + '1 hour'")
        return loot

    record = work_off(app, app.find_task(colour).enqueue().job_id, concurrency=1)
    assert (record.state, record.result) == (JobState.SUCCEEDED, [0, 0])
    assert record.attempts == 1


def test_assert_fence_refuses_a_stale_handler_before_it_writes(
    app: Faultline, conn: Connection, effects: str, database_url: str
) -> None:
    refused: list[str] = []

    @app.task()
    def stale(job: Job) -> None:
        take_over(conn, job.id)
        with psycopg.connect(database_url) as own:
            try:
                job.assert_fence(own)
            except StaleLease as error:
                refused.append(error.reason)
                raise
            own.execute(WRITE)

    job_id = stale.enqueue().job_id
    with working(app, self_fencing=False):
        wait_until(lambda: rejections(conn, job_id))
    assert (refused, count(conn, effects)) == (["token_mismatch"], 0)


def test_a_refusal_that_concerns_another_job_is_an_ordinary_error(
    app: Faultline, conn: Connection
) -> None:
    @app.task(max_attempts=1)
    async def meddling(job: Job) -> None:
        raise StaleLease("token_mismatch", job_id="01890000-0000-7000-8000-000000000000")

    with working(app):
        record = ended(app, meddling.enqueue().job_id)
    assert (record.state, record.failed_reason) == (JobState.FAILED, "attempts_spent")
    assert rejections(conn, record.id) == []
