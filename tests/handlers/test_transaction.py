"""job.transaction() commits the user's writes, ledger entry and success, or none."""

from __future__ import annotations

import contextlib

import psycopg
import pytest

from faultline import Faultline, Job, JobState, RetryPolicy
from tests.running import Connection, count, value, work_off

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
    assert f"{verb}() is not yours to call here" in str(record.last_error)
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
