"""job.commit_with(): the writes, the entry and the COMMIT are one message."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import psycopg
import pytest
from psycopg import sql

from faultline import Faultline, InvalidInput, Job, JobState, RetryPolicy, StaleLease
from tests.running import (
    Connection,
    count,
    rejections,
    take_over,
    value,
    wait_for_the_first_heartbeat,
    work_off,
    working,
)
from tests.waiting import wait_until

QUICK = RetryPolicy(base_seconds=0.01, cap_seconds=0.02)
WRITE = "INSERT INTO effects VALUES (%s)"
TOGETHER = (
    "SELECT e.xmin = l.xmin AND l.xmin = j.xmin"
    " FROM effects AS e, faultline.ledger AS l, faultline.jobs AS j"
)
KINDS = ["async", "plain"]


def add(app: Faultline, kind: str, *given: Any, **options: Any) -> Any:
    """A task whose handler calls commit_with with these arguments."""
    settings = {"retry": QUICK, **options}
    raises = settings.pop("raises", None)

    @app.task(name="async", **settings)
    async def on_loop(job: Job) -> None:
        try:
            await job.commit_with(*given[:2], also=given[2:], result={"done": 1})
        except Exception as error:
            if raises is None:
                raise
            raises.append(error)

    @app.task(name="plain", **settings)
    def in_thread(job: Job) -> None:
        try:
            job.commit_with(*given[:2], also=given[2:], result={"done": 1})
        except Exception as error:
            if raises is None:
                raise
            raises.append(error)

    return app.find_task(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_writes_ledger_and_success_are_one_transaction(
    app: Faultline, conn: Connection, effects: str, kind: str
) -> None:
    record = work_off(app, add(app, kind, WRITE, ["100 % of 'it'; --"]).enqueue().job_id)
    assert (record.state, record.result) == (JobState.SUCCEEDED, {"done": 1})
    assert value(conn, TOGETHER) is True
    assert value(conn, "SELECT note FROM effects") == "100 % of 'it'; --"


def test_several_statements_of_any_form_are_one_transaction(
    app: Faultline, conn: Connection, effects: str
) -> None:
    composed = sql.SQL("INSERT INTO {} VALUES ({})").format(sql.Identifier(effects), "composed")
    task = add(
        app,
        "async",
        "INSERT INTO effects VALUES ('100 %') -- no parameters, and a comment",
        None,
        ("INSERT INTO effects VALUES (%(note)s)", {"note": "named"}),
        composed,
        b"INSERT INTO effects VALUES ('bytes')",
    )
    assert work_off(app, task.enqueue().job_id).state is JobState.SUCCEEDED
    notes = conn.execute("SELECT note FROM effects ORDER BY note").fetchall()
    assert notes == [("100 %",), ("bytes",), ("composed",), ("named",)]
    assert value(conn, "SELECT count(DISTINCT xmin::text) FROM effects") == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("INSERT INTO effects VALUES ('x'); SELECT 1 / 0", psycopg.errors.DivisionByZero),
        ("INSERT INTO effects VALUES", psycopg.errors.SyntaxError),
        ("INSERT INTO nowhere VALUES (1)", psycopg.errors.UndefinedTable),
    ],
)
def test_an_error_of_a_statement_is_raised_as_it_is_and_nothing_is_committed(
    app: Faultline,
    conn: Connection,
    effects: str,
    kind: str,
    statement: str,
    expected: type[Exception],
) -> None:
    raised: list[Exception] = []
    task = add(app, kind, statement, None, raises=raised, max_attempts=1)
    record = work_off(app, task.enqueue().job_id)
    assert [type(error) for error in raised] == [expected]
    assert record.state is JobState.FAILED
    assert "job.commit_with() and returned, but its transaction was not committed" in (
        record.last_error or ""
    )
    assert (count(conn, effects), count(conn, "faultline.ledger")) == (0, 0)


def test_an_error_is_a_failure_at_once_and_the_next_attempt_commits(
    app: Faultline, conn: Connection, effects: str
) -> None:
    @app.task(retry=QUICK)
    async def twice(job: Job) -> None:
        await job.commit_with(WRITE, ["x"], also=[("SELECT 1 / %s", [job.attempt - 1])])

    record = work_off(app, twice.enqueue().job_id)
    assert (record.state, record.attempts) == (JobState.SUCCEEDED, 2)
    assert "division by zero" in (record.last_error or "")
    assert count(conn, effects) == 1


@pytest.mark.parametrize(
    "statement", ["COMMIT", "INSERT INTO effects VALUES ('x'); ROLLBACK", "BEGIN", "LISTEN news"]
)
def test_what_a_message_cannot_hold_is_refused_before_it_is_sent(
    app: Faultline, conn: Connection, effects: str, statement: str
) -> None:
    raised: list[Exception] = []
    task = add(app, "plain", statement, None, raises=raised, max_attempts=1)
    assert work_off(app, task.enqueue().job_id).state is JobState.FAILED
    assert [type(error) for error in raised] == [InvalidInput]
    assert count(conn, effects) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_stale_worker_writes_nothing_even_if_it_swallows_the_refusal(
    app: Faultline, conn: Connection, effects: str, kind: str
) -> None:
    raised: list[Exception] = []

    def lose(job: Job) -> None:
        wait_for_the_first_heartbeat(conn)  # the next one would notice the loss
        take_over(conn, job.id)

    @app.task(name="async")
    async def on_loop(job: Job) -> None:
        lose(job)
        try:
            await job.commit_with(WRITE, ["x"])
        except StaleLease as error:
            raised.append(error)

    @app.task(name="plain")
    def in_thread(job: Job) -> None:
        lose(job)
        try:
            job.commit_with(WRITE, ["x"])
        except StaleLease as error:
            raised.append(error)

    job_id = app.find_task(kind).enqueue().job_id
    with working(app):
        wait_until(lambda: rejections(conn, job_id), "the refusal")
    assert [type(error) for error in raised] == [StaleLease]
    assert (count(conn, effects), count(conn, "faultline.ledger")) == (0, 0)


def test_an_async_handler_that_does_not_await_it_has_not_succeeded(
    app: Faultline, conn: Connection, effects: str
) -> None:
    @app.task(max_attempts=1)
    async def forgets(job: Job) -> None:
        never_awaited = job.commit_with(WRITE, ["x"])
        assert isinstance(never_awaited, Coroutine)
        never_awaited.close()

    record = work_off(app, forgets.enqueue().job_id)
    assert record.state is JobState.FAILED
    assert count(conn, effects) == 0


def test_it_is_refused_inside_of_a_block(app: Faultline, conn: Connection, effects: str) -> None:
    @app.task(max_attempts=1)
    async def nested(job: Job) -> None:
        async with job.transaction() as tx:
            await tx.execute(WRITE, ["outer"])
            await job.commit_with(WRITE, ["inner"])

    assert work_off(app, nested.enqueue().job_id).state is JobState.FAILED
    assert count(conn, effects) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_hook_that_prepares_transactions_is_called_first(
    database_url: str, conn: Connection, effects: str, kind: str
) -> None:
    def prepare(job: Any, tx: Any) -> Any:
        if kind == "async":
            return tx.execute("SET LOCAL app.tenant = 'acme'")
        tx.execute("SET LOCAL app.tenant = 'acme'")
        return None

    app = Faultline(database_url, prepare_transaction=prepare)
    statement = "INSERT INTO effects VALUES (current_setting('app.tenant'))"
    task = add(app, kind, statement, None)
    assert work_off(app, task.enqueue().job_id).state is JobState.SUCCEEDED
    assert value(conn, "SELECT note FROM effects") == "acme"
    app.close()
