"""job.transaction(): the user's writes, the ledger entry and "succeeded", together or not at all."""

from __future__ import annotations

import contextlib
from typing import Any

import psycopg
import pytest

from faultline import Faultline, Job, JobState, RetryPolicy, StaleLease

from .running import (
    Connection,
    count,
    expire,
    rejections,
    take_over,
    until,
    value,
    wait_for_the_first_heartbeat,
    work_off,
    working,
)

QUICK = RetryPolicy(base_seconds=0.01, cap_seconds=0.02)
WRITE = "INSERT INTO effects VALUES ('written')"
TOGETHER = (
    "SELECT e.xmin = l.xmin AND l.xmin = j.xmin"
    " FROM effects AS e, faultline.ledger AS l, faultline.jobs AS j"
)


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_writes_ledger_and_success_are_one_transaction(
    app: Faultline, conn: Connection, effects: str, colour: str
) -> None:
    @app.task(name="async")
    async def on_loop(job: Job) -> None:
        async with job.transaction() as tx:
            await tx.execute(WRITE)

    @app.task(name="plain")
    def in_thread(job: Job) -> None:
        with job.transaction() as tx:
            tx.execute(WRITE)

    record = work_off(app, app.find_task(colour).enqueue().job_id)
    assert record.state is JobState.SUCCEEDED
    assert value(conn, TOGETHER) is True


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_an_exception_rolls_everything_back_and_the_next_attempt_commits(
    app: Faultline, conn: Connection, effects: str, colour: str
) -> None:
    @app.task(name="async", retry=QUICK)
    async def on_loop(job: Job) -> None:
        async with job.transaction() as tx:
            await tx.execute(WRITE)
            if job.attempt == 1:
                raise ValueError("in the middle")

    @app.task(name="plain", retry=QUICK)
    def in_thread(job: Job) -> None:
        with job.transaction() as tx:
            tx.execute(WRITE)
            if job.attempt == 1:
                raise ValueError("in the middle")

    record = work_off(app, app.find_task(colour).enqueue().job_id)
    assert (record.state, record.attempts) == (JobState.SUCCEEDED, 2)
    assert count(conn, effects) == 1


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_rollback_on_request_fails_the_attempt(
    app: Faultline, conn: Connection, effects: str, colour: str
) -> None:
    @app.task(name="async", max_attempts=1)
    async def on_loop(job: Job) -> None:
        async with job.transaction() as tx:
            await tx.execute(WRITE)
            raise psycopg.Rollback

    @app.task(name="plain", max_attempts=1)
    def in_thread(job: Job) -> None:
        with job.transaction() as tx:
            tx.execute(WRITE)
            raise psycopg.Rollback

    record = work_off(app, app.find_task(colour).enqueue().job_id)
    assert record.state is JobState.FAILED
    assert "NotCommitted" in str(record.last_error)
    assert count(conn, effects) == 0


@pytest.mark.parametrize("verb", ["commit", "rollback"])
def test_ending_the_transaction_by_hand_is_refused(
    app: Faultline, conn: Connection, effects: str, verb: str
) -> None:
    @app.task(max_attempts=1)
    async def by_hand(job: Job) -> None:
        async with job.transaction() as tx:
            await tx.execute(WRITE)
            await getattr(tx, verb)()

    record = work_off(app, by_hand.enqueue().job_id)
    assert record.state is JobState.FAILED
    assert f"Explicit {verb}() forbidden" in str(record.last_error)
    assert count(conn, effects) == 0


def test_an_error_swallowed_inside_the_transaction_does_not_save_it(
    app: Faultline, conn: Connection, effects: str
) -> None:
    @app.task(max_attempts=1)
    async def careless(job: Job) -> None:
        async with job.transaction() as tx:
            await tx.execute(WRITE)
            with contextlib.suppress(psycopg.Error):
                await tx.execute("SELECT 1 / 0")

    record = work_off(app, careless.enqueue().job_id)
    assert record.state is JobState.FAILED
    assert count(conn, effects) == 0


# ── stale handlers that will not hear of it ──────────────────────────────────────────────────────


async def swallow_around_the_block(job: Job, conn: Connection, url: str) -> None:
    take_over(conn, job.id)
    with contextlib.suppress(StaleLease):
        async with job.transaction() as tx:
            await tx.execute(WRITE)


async def go_stale_inside_the_block(job: Job, conn: Connection, url: str) -> None:
    with contextlib.suppress(StaleLease):
        async with job.transaction() as tx:
            await tx.execute(WRITE)
            # The row is locked by now, so nobody can take the job over; but time goes on.
            await tx.execute(
                "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() WHERE id = %s",
                [job.id],
            )


async def swallow_around_commit(job: Job, conn: Connection, url: str) -> None:
    take_over(conn, job.id)
    async with await psycopg.AsyncConnection.connect(url) as own:
        await own.execute(WRITE)
        with contextlib.suppress(StaleLease):
            await job.commit(own)
        with contextlib.suppress(psycopg.Error):
            await own.commit()


async def swallow_the_fence_inside_ones_own_transaction(
    job: Job, conn: Connection, url: str
) -> None:
    take_over(conn, job.id)
    async with await psycopg.AsyncConnection.connect(url) as own:
        with contextlib.suppress(StaleLease):
            await job.assert_fence(own)
        with contextlib.suppress(psycopg.Error):
            await own.execute(WRITE)


async def swallow_a_fenced_block(job: Job, conn: Connection, url: str) -> None:
    take_over(conn, job.id)
    with contextlib.suppress(StaleLease):
        async with job.fenced() as tx:
            await tx.execute(WRITE)


async def swallow_everything_twice(job: Job, conn: Connection, url: str) -> None:
    take_over(conn, job.id)
    for _ in range(2):
        with contextlib.suppress(Exception):
            async with job.transaction() as tx:
                await tx.execute(WRITE)


WAYS: list[Any] = [
    swallow_around_the_block,
    go_stale_inside_the_block,
    swallow_around_commit,
    swallow_the_fence_inside_ones_own_transaction,
    swallow_a_fenced_block,
    swallow_everything_twice,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: str(way.__name__))
def test_a_handler_that_swallows_the_refusal_still_commits_nothing(
    app: Faultline, conn: Connection, effects: str, database_url: str, way: Any
) -> None:
    @app.task(max_attempts=1)
    async def deaf(job: Job) -> str:
        await way(job, conn, database_url)
        return "as if nothing had happened"

    job_id = deaf.enqueue().job_id
    with working(app, self_fencing=False):
        until(lambda: rejections(conn, job_id) or app.get(job_id).state is JobState.FAILED)
    assert count(conn, effects) == 0
    assert count(conn, "faultline.ledger") == 0
    assert app.get(job_id).state is not JobState.SUCCEEDED


def test_a_swallowed_refusal_is_no_success_even_if_the_lease_comes_back_to_life(
    app: Faultline, conn: Connection, effects: str
) -> None:
    @app.task(max_attempts=1)
    async def deaf(job: Job) -> None:
        wait_for_the_first_heartbeat(conn)
        expire(conn, job.id)
        with contextlib.suppress(StaleLease):
            async with job.transaction() as tx:
                await tx.execute(WRITE)
        # An expired lease that nobody took may be renewed; here the next heartbeat is not awaited.
        conn.execute(
            "UPDATE faultline.jobs SET lease_expires_at = now() + interval '1 hour' WHERE id = %s",
            [job.id],
        )

    job_id = deaf.enqueue().job_id
    with working(app, self_fencing=False, concurrency=1, lease_seconds=60):
        until(
            lambda: (
                rejections(conn, job_id)
                or app.get(job_id).state in (JobState.SUCCEEDED, JobState.FAILED)
            )
        )
    assert (count(conn, effects), count(conn, "faultline.ledger")) == (0, 0)
