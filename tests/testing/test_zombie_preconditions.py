"""`zombies` raises an error if its runs could not prove anything."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from faultline import Faultline, Job
from faultline.errors import InvalidInput
from faultline.testing import Fault, NotExercised, ZombieEffect, zombies

from . import handlers
from .handlers import ARGS, INSERT, paid_once

Connection = psycopg.Connection[Any]


def test_an_invariant_that_fails_without_a_fault_is_an_error(app: Faultline, payments: str) -> None:
    with pytest.raises(NotExercised, match="pay fails without a fault"):
        zombies(app, handlers.in_a_transaction(app), ARGS, invariant=lambda conn: False)


def test_a_handler_that_fails_without_a_fault_is_an_error(app: Faultline, payments: str) -> None:
    @app.task(name="pay", max_attempts=1)
    def pay(job: Job) -> None:
        raise ValueError("no such invoice")

    with pytest.raises(NotExercised, match="ends in ValueError: no such invoice"):
        zombies(app, pay, invariant=lambda conn: True)


def test_a_point_that_is_not_reached_again_is_an_error(app: Faultline, payments: str) -> None:
    runs = iter(range(100))

    @app.task(name="pay")
    async def pay(job: Job, invoice: int) -> None:
        if next(runs) == 0:
            await asyncio.sleep(0)  # the point, which is named below
        async with job.transaction() as tx:
            await tx.execute(INSERT, [invoice, job.token])

    with pytest.raises(NotExercised, match=r"did not reach .* await sleep\(\) again"):
        zombies(app, pay, ARGS, invariant=paid_once, faults=[Fault.CRASH])


def test_a_named_fault_without_a_point_is_an_error(app: Faultline) -> None:
    @app.task(name="pay")
    def pay(job: Job) -> None:
        return None

    with pytest.raises(NotExercised, match="no point for lost_answer"):
        zombies(app, pay, invariant=lambda conn: True, faults=["crash", "lost_answer"])
    with pytest.raises(NotExercised, match="no fault was injected"):
        zombies(app, pay, invariant=lambda conn: True, faults=["lost_answer"])


def test_a_job_without_a_second_attempt_is_an_error(app: Faultline) -> None:
    """With max_attempts=1 no worker takes the job over after a fault."""

    @app.task(name="pay", max_attempts=1)
    def pay(job: Job) -> None:
        return None

    with pytest.raises(NotExercised, match="second attempt"):
        zombies(app, pay, invariant=lambda conn: True, faults=["crash"], must_succeed=False)


def test_a_job_that_never_succeeds_after_a_fault_is_a_violation(
    app: Faultline, payments: str
) -> None:
    """The effect is there once, but the second attempt cannot repeat it and fails."""

    @app.task(name="pay", max_attempts=2)
    def pay(job: Job, invoice: int) -> None:
        with psycopg.connect(app.database_url) as conn:
            conn.execute("INSERT INTO steps VALUES ('once and never again')")
            conn.execute(INSERT, [invoice, job.token])

    with pytest.raises(ZombieEffect) as found:
        zombies(app, pay, ARGS, invariant=paid_once, faults=[Fault.CRASH])
    (violation,) = found.value.report.violations
    assert violation.reason == "the job is failed (attempts_spent)"
    report = zombies(app, pay, ARGS, invariant=paid_once, faults=[Fault.CRASH], must_succeed=False)
    assert report.violations == ()


def test_each_run_starts_from_the_initial_database(app: Faultline, payments: str) -> None:
    with psycopg.connect(app.database_url) as conn:
        conn.execute("INSERT INTO steps VALUES ('before')")
    arranged: list[int] = []

    def arrange(conn: Connection) -> None:
        row = conn.execute(
            "SELECT (SELECT count(*) FROM payments), (SELECT count(*) FROM steps),"
            " (SELECT count(*) FROM faultline.jobs)"
        ).fetchone()
        assert row == (0, 1, 0)
        arranged.append(1)

    report = zombies(
        app,
        handlers.in_a_transaction_of_a_plain_handler(app),
        ARGS,
        invariant=paid_once,
        arrange=arrange,
        faults=[Fault.LOST_ANSWER],
    )
    assert len(arranged) == len(report.runs) + 1  # and once to find the points
    with psycopg.connect(app.database_url) as conn:
        arrange(conn)  # the database is restored after the last run


def test_a_database_that_was_not_made_for_tests_is_refused(database_url: str) -> None:
    app = Faultline(database_url)
    task = handlers.in_a_transaction(app)
    with pytest.raises(InvalidInput, match=r"not made by faultline\.testing"):
        zombies(app, task, ARGS, invariant=paid_once)
    app.close()


def test_a_task_of_another_application_and_too_many_runs_are_refused(
    app: Faultline, payments: str
) -> None:
    task = handlers.in_a_transaction(app)
    with pytest.raises(InvalidInput, match="not a task of this application"):
        zombies(Faultline("postgresql://nowhere"), task, ARGS, invariant=paid_once)
    with pytest.raises(InvalidInput, match="more than max_runs=3"):
        zombies(app, task, ARGS, invariant=paid_once, max_runs=3)
