"""A handler that lost its lease and ignores every error still commits nothing."""

from __future__ import annotations

import contextlib
from typing import Any

import psycopg
import pytest

from faultline import Faultline, Job, JobState, StaleLease
from tests.running import (
    Connection,
    count,
    expire,
    rejections,
    take_over,
    wait_for_the_first_heartbeat,
    working,
)
from tests.waiting import wait_until

WRITE = "INSERT INTO effects VALUES ('written')"


async def swallow_around_the_block(job: Job, conn: Connection, url: str) -> None:
    take_over(conn, job.id)
    with contextlib.suppress(StaleLease):
        async with job.transaction() as tx:
            await tx.execute(WRITE)


async def go_stale_inside_the_block(job: Job, conn: Connection, url: str) -> None:
    with contextlib.suppress(StaleLease):
        async with job.transaction() as tx:
            await tx.execute(WRITE)
            # The row is locked by now, so no other worker can claim the job; but the lease still runs out.
            await tx.execute(
                "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() WHERE id = %s",
                [job.id],
            )


async def swallow_around_commit(job: Job, conn: Connection, url: str) -> None:
    take_over(conn, job.id)
    with contextlib.suppress(psycopg.OperationalError):
        async with await psycopg.AsyncConnection.connect(url) as own:
            await own.execute(WRITE)
            with contextlib.suppress(StaleLease):
                await job.commit(own)
            await own.commit()


async def swallow_the_fence_inside_ones_own_transaction(
    job: Job, conn: Connection, url: str
) -> None:
    take_over(conn, job.id)
    with contextlib.suppress(psycopg.OperationalError):
        async with await psycopg.AsyncConnection.connect(url) as own:
            with contextlib.suppress(StaleLease):
                await job.assert_fence(own)
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


async def swallow_in_a_savepoint_around_commit(job: Job, conn: Connection, url: str) -> None:
    take_over(conn, job.id)
    with contextlib.suppress(psycopg.OperationalError):  # the refusal has cut the connection
        async with await psycopg.AsyncConnection.connect(url) as own:
            await own.execute(WRITE)
            with contextlib.suppress(StaleLease):
                async with own.transaction():
                    await job.commit(own)


async def swallow_in_a_savepoint_around_the_fence(job: Job, conn: Connection, url: str) -> None:
    take_over(conn, job.id)
    with contextlib.suppress(psycopg.OperationalError):
        async with await psycopg.AsyncConnection.connect(url) as own:
            await own.execute(WRITE)
            with contextlib.suppress(StaleLease):
                async with own.transaction():
                    await job.assert_fence(own)


async def swallow_a_fenced_block_within_ones_own_transaction(
    job: Job, conn: Connection, url: str
) -> None:
    take_over(conn, job.id)
    with contextlib.suppress(psycopg.OperationalError):
        async with await psycopg.AsyncConnection.connect(url) as own:
            await own.execute(WRITE)
            with contextlib.suppress(StaleLease):
                async with job.fenced(own):
                    pass


async def swallow_plainly_in_a_savepoint(job: Job, conn: Connection, url: str) -> None:
    take_over(conn, job.id)
    with contextlib.suppress(psycopg.OperationalError), psycopg.connect(url) as own:
        own.execute(WRITE)
        with contextlib.suppress(StaleLease), own.transaction():
            job.commit(own)


WAYS: list[Any] = [
    swallow_around_the_block,
    go_stale_inside_the_block,
    swallow_around_commit,
    swallow_the_fence_inside_ones_own_transaction,
    swallow_a_fenced_block,
    swallow_everything_twice,
    swallow_in_a_savepoint_around_commit,
    swallow_in_a_savepoint_around_the_fence,
    swallow_a_fenced_block_within_ones_own_transaction,
    swallow_plainly_in_a_savepoint,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: str(way.__name__))
def test_a_handler_that_swallows_the_refusal_still_commits_nothing(
    app: Faultline, conn: Connection, effects: str, database_url: str, way: Any
) -> None:
    @app.task()
    async def deaf(job: Job) -> str:
        await way(job, conn, database_url)
        return "as if nothing had happened"

    job_id = deaf.enqueue().job_id
    with working(app, self_fencing=False, concurrency=1):
        if way is go_stale_inside_the_block:  # rolled back, it may be tried again
            wait_until(lambda: count(conn, "faultline.attempts_log"), "a failed attempt")
        else:
            wait_until(lambda: rejections(conn, job_id), "a refusal on record")
            assert rejections(conn, job_id) == [(1, 2, "token_mismatch")]
        assert count(conn, effects) == 0
        assert count(conn, "faultline.ledger") == 0
        assert app.get(job_id).state is not JobState.SUCCEEDED


def test_a_swallowed_refusal_is_no_success_even_if_the_lease_is_renewed(
    app: Faultline, conn: Connection, effects: str
) -> None:
    @app.task(max_attempts=1)
    async def deaf(job: Job) -> None:
        wait_for_the_first_heartbeat(conn)
        expire(conn, job.id)
        with contextlib.suppress(StaleLease):
            async with job.transaction() as tx:
                await tx.execute(WRITE)
        # An expired lease that was not superseded may be renewed; this test does not wait for a heartbeat.
        conn.execute(
            "UPDATE faultline.jobs SET lease_expires_at = now() + interval '1 hour' WHERE id = %s",
            [job.id],
        )

    job_id = deaf.enqueue().job_id
    with working(app, self_fencing=False, concurrency=1, lease_seconds=600):
        wait_until(
            lambda: (
                rejections(conn, job_id)
                or app.get(job_id).state in (JobState.SUCCEEDED, JobState.FAILED)
            )
        )
    assert (count(conn, effects), count(conn, "faultline.ledger")) == (0, 0)
