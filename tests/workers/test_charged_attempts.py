"""A server failure costs no attempt; a handler that breaks its session costs one."""

from __future__ import annotations

import contextlib
from typing import Any

import psycopg
import pytest

from faultline import Faultline, Job, JobState, RetryPolicy
from faultline.errors import DatabaseUnavailable
from faultline.postgres.errors import is_server_loss
from tests.running import Connection, ended, value, work_off, working
from tests.waiting import wait_until

SOON = RetryPolicy(base_seconds=0.01, cap_seconds=0.01)
# As a shutdown of the server ends them.
OF_THE_WORKER = (
    "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    " AND application_name ~ '^faultline' AND application_name <> 'faultline producer'"
)
END_ALL = f"SELECT count(pg_terminate_backend(pid)) {OF_THE_WORKER}"
END_ONE = f"{END_ALL} AND query ~ 'pg_sleep'"
IS_SLEEPING = f"SELECT count(*) {OF_THE_WORKER} AND state = 'active' AND query ~ 'pg_sleep'"
END_OWN = "SELECT pg_terminate_backend(pg_backend_pid())"
SLEEP = "SELECT pg_sleep(600)"


class Wrapped(Exception):
    """An error in which a handler wraps the driver's error."""


@pytest.fixture
def tasks(app: Faultline) -> dict[str, Any]:
    """Each sleeps in a statement at its first claim, and succeeds at any later one."""

    @app.task(retry=SOON)
    async def in_async_block(job: Job) -> None:
        async with job.transaction() as tx:
            if job.token == 1:
                await tx.execute(SLEEP)

    @app.task(retry=SOON)
    def in_plain_block(job: Job) -> None:
        with job.transaction() as tx:
            if job.token == 1:
                tx.execute(SLEEP)

    @app.task(retry=SOON)
    def in_own_session(job: Job) -> None:
        own = {"application_name": "faultline's user"}
        with psycopg.connect(app.database_url, **own) as conn:  # type: ignore[arg-type]
            if job.token == 1:
                try:
                    conn.execute(SLEEP)
                except psycopg.Error as error:
                    raise Wrapped("the payment failed") from error

    return {
        each.handler.__name__: each for each in (in_async_block, in_plain_block, in_own_session)
    }


def outcomes(conn: Connection, job_id: object) -> list[tuple[Any, ...]]:
    query = "SELECT outcome FROM faultline.attempts_log WHERE job_id = %s ORDER BY id"
    return [row[0] for row in conn.execute(query, [job_id]).fetchall()]


@pytest.mark.parametrize("where", ["in_async_block", "in_plain_block", "in_own_session"])
def test_a_statement_that_is_cut_with_all_sessions_of_the_worker_is_not_charged(
    app: Faultline, conn: Connection, tasks: dict[str, Any], where: str
) -> None:
    job_id = tasks[where].enqueue().job_id
    with working(app):
        wait_until(lambda: value(conn, IS_SLEEPING) == 1, "the statement")
        conn.execute(END_ALL)
        job = ended(app, job_id)
    assert (job.state, job.attempts) == (JobState.SUCCEEDED, 1)
    assert outcomes(conn, job_id) == ["released"]
    error = value(conn, "SELECT error FROM faultline.attempts_log")
    assert error.startswith("the server failed: ")
    assert "terminating connection" in error


@pytest.mark.parametrize("where", ["in_async_block", "in_plain_block", "in_own_session"])
def test_a_statement_that_is_cut_alone_is_charged(
    app: Faultline, conn: Connection, tasks: dict[str, Any], where: str
) -> None:
    job_id = tasks[where].enqueue().job_id
    with working(app):
        wait_until(lambda: value(conn, IS_SLEEPING) == 1, "the statement")
        conn.execute(END_ONE)
        job = ended(app, job_id)
    assert (job.state, job.attempts) == (JobState.SUCCEEDED, 2)
    assert outcomes(conn, job_id) == ["failed"]


def test_a_handler_that_ends_its_own_session_is_charged_each_time(
    app: Faultline, conn: Connection
) -> None:
    @app.task(max_attempts=2, retry=SOON)
    async def end_own_session(job: Job) -> None:
        async with job.transaction() as tx:
            await tx.execute(END_OWN)

    job = work_off(app, job_id := end_own_session.enqueue().job_id)
    assert job.state is JobState.FAILED
    assert outcomes(conn, job_id) == ["failed", "failed"]


def test_a_job_that_always_crashes_the_server_fails_in_the_end(
    app: Faultline, conn: Connection
) -> None:
    """Five attempts are free, the sixth is charged; an operator's retry starts over."""

    @app.task(max_attempts=1)
    async def end_every_session(job: Job) -> None:
        async with job.transaction() as tx:
            await tx.execute(END_ALL)
            await tx.execute(END_OWN)

    job_id = end_every_session.enqueue().job_id
    with working(app):
        assert ended(app, job_id).state is JobState.FAILED
    spared = ["released"] * 5
    assert outcomes(conn, job_id) == [*spared, "failed"]
    app.retry(job_id)
    with working(app):
        wait_until(lambda: len(outcomes(conn, job_id)) == 13, "the second end")
    assert outcomes(conn, job_id) == [*spared, "failed", "retried", *spared, "failed"]


def test_a_commit_that_is_cut_with_all_sessions_of_the_worker_is_not_charged(
    app: Faultline, conn: Connection, effects: str
) -> None:
    conn.execute(
        f"CREATE FUNCTION sleep_once() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN IF NEW.note = '1' THEN PERFORM pg_sleep(600); END IF; RETURN NULL; END $$;"
        f" CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON {effects} DEFERRABLE INITIALLY DEFERRED"
        f" FOR EACH ROW EXECUTE FUNCTION sleep_once()"
    )

    @app.task(retry=SOON)
    async def pay(job: Job) -> None:
        async with job.transaction() as tx:
            await tx.execute("INSERT INTO effects VALUES (%s)", [str(job.token)])

    waits = f"SELECT count(*) {OF_THE_WORKER} AND wait_event = 'PgSleep'"
    job_id = pay.enqueue().job_id
    with working(app, lease_seconds=600):
        wait_until(lambda: value(conn, waits) == 1, "the COMMIT")
        conn.execute(END_ALL)
        job = ended(app, job_id)
    assert (job.state, job.attempts) == (JobState.SUCCEEDED, 1)
    assert outcomes(conn, job_id) == ["released"]


def chained(outer: Exception, cause: BaseException) -> Exception:
    with contextlib.suppress(type(outer)):
        raise outer from cause
    return outer


class Hostile(Exception):
    @property
    def sqlstate(self) -> str:
        raise SystemExit("not for you")


@pytest.mark.parametrize(
    ("error", "is_loss"),
    [
        (psycopg.errors.AdminShutdown("terminating connection"), True),
        (psycopg.OperationalError("server closed the connection unexpectedly"), True),
        (psycopg.errors.ReadOnlySqlTransaction("cannot execute INSERT"), True),
        (DatabaseUnavailable("away"), True),
        (chained(Wrapped("the payment failed"), psycopg.errors.CrashShutdown("crash")), True),
        (psycopg.errors.QueryCanceled("statement timeout"), False),
        (psycopg.errors.UniqueViolation("again"), False),
        (chained(Wrapped("refused"), Hostile()), False),
        (ValueError("of its own"), False),
    ],
    ids=lambda each: type(each).__name__,
)
def test_only_errors_that_a_failing_server_raises_can_be_its_fault(
    error: Exception, is_loss: bool
) -> None:
    assert is_server_loss(error) is is_loss
