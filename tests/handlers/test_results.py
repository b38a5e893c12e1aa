"""One rule for results: `job.result`, else what the handler returned."""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from faultline import Faultline, InvalidInput, Job, JobState
from faultline.results import discarded, encode_result, result_of
from tests.running import Connection, EventTap, count, value, work_off


@pytest.fixture
def warned(events: EventTap) -> Any:
    return lambda: [line["reason"].split(",")[0] for line in events.of("result_discarded")]


@pytest.mark.parametrize("colour", ["async", "plain"])
@pytest.mark.parametrize(
    ("own", "returned", "stored", "lost"),
    [
        (None, {"a": 1}, {"a": 1}, []),
        ({"a": 1}, None, {"a": 1}, []),
        ({"a": 1}, {"a": 1}, {"a": 1}, []),
        ([1, 2], (1, 2), [1, 2], []),
        (1, 2, 1, ["the handler returned a int"]),
        (0, False, 0, []),  # as JSON documents of Python they are equal
    ],
)
def test_without_a_commit_of_its_own_the_handlers_value_is_the_result(
    app: Faultline,
    warned: Any,
    colour: str,
    own: Any,
    returned: Any,
    stored: Any,
    lost: list[str],
) -> None:
    @app.task(name="async")
    async def on_loop(job: Job) -> Any:
        job.result = own
        return returned

    @app.task(name="plain")
    def in_thread(job: Job) -> Any:
        job.result = own
        return returned

    assert work_off(app, app.find_task(colour).enqueue().job_id).result == stored
    assert warned() == lost


@pytest.mark.parametrize("colour", ["async", "plain"])
@pytest.mark.parametrize(
    ("own", "returned", "lost"),
    [
        (None, {"a": 1}, ["the handler returned a dict"]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, []),
        ({"a": 1}, None, []),
        ({"a": 1}, {"a": 2}, ["the handler returned a dict"]),
        (None, datetime(2026, 1, 1, tzinfo=UTC), ["the handler returned a datetime"]),
    ],
)
def test_a_value_returned_after_the_commit_is_reported_unless_it_was_stored(
    app: Faultline, events: EventTap, warned: Any, colour: str, own: Any, returned: Any, lost: Any
) -> None:
    @app.task(name="async")
    async def on_loop(job: Job) -> Any:
        async with job.transaction():
            job.result = own
        return returned

    @app.task(name="plain")
    def in_thread(job: Job) -> Any:
        with job.transaction():
            job.result = own
        return returned

    record = work_off(app, app.find_task(colour).enqueue().job_id)
    assert (record.state, record.result) == (JobState.SUCCEEDED, own)
    assert warned() == lost
    for line in events.of("result_discarded"):
        assert (line["job_id"], line["task"]) == (str(record.id), colour)
        assert "set job.result before job.transaction() ends" in line["reason"]


def test_a_result_that_is_set_or_changed_after_the_commit_is_reported(
    app: Faultline, warned: Any
) -> None:
    @app.task(name="set")
    def set_late(job: Job) -> None:
        with job.transaction():
            pass
        job.result = "late"

    @app.task(name="changed")
    def change_late(job: Job) -> None:
        with job.transaction():
            job.result = {"rows": 1}
        job.result["rows"] = 2

    assert work_off(app, set_late.enqueue().job_id).result is None
    assert work_off(app, change_late.enqueue().job_id).result == {"rows": 1}
    assert warned() == [
        "the handler changed job.result to a str after the commit",
        "the handler changed job.result to a dict after the commit",
    ]


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_commit_in_the_users_transaction_stores_the_result_of_the_job(
    app: Faultline, database_url: str, warned: Any, colour: str
) -> None:
    @app.task(name="async")
    async def on_loop(job: Job) -> str:
        job.result = "set"
        async with await psycopg.AsyncConnection.connect(database_url) as own:
            await job.commit(own)
        return "returned"

    @app.task(name="plain")
    def in_thread(job: Job) -> str:
        with psycopg.connect(database_url) as own:
            job.commit(own, result="set")
        return "returned"

    assert work_off(app, app.find_task(colour).enqueue().job_id).result == "set"
    assert warned() == ["the handler returned a str"]


def test_a_commit_with_a_result_that_cannot_be_stored_closes_the_connection(
    app: Faultline, conn: Connection, effects: str, database_url: str
) -> None:
    @app.task(max_attempts=1)
    def stubborn(job: Job) -> None:
        with psycopg.connect(database_url) as own:
            own.execute("INSERT INTO effects VALUES ('written')")
            with pytest.raises(InvalidInput, match="the result is a set"):
                job.commit(own, result={1})
            own.commit()

    record = work_off(app, stubborn.enqueue().job_id)
    assert record.state is JobState.FAILED
    assert (count(conn, effects), count(conn, "faultline.ledger")) == (0, 0)


@pytest.mark.parametrize("unfit", [object(), {"x": b""}, "x" * (1 << 20), float("nan")])
def test_a_result_that_cannot_be_stored_fails_the_attempt_before_the_commit(
    app: Faultline, conn: Connection, unfit: Any
) -> None:
    @app.task(name="returns")
    def returns(job: Job) -> Any:
        return unfit

    @app.task(name="sets", max_attempts=1)
    def sets(job: Job) -> None:
        with job.transaction():
            job.result = unfit

    for task in (returns, sets):
        record = work_off(app, task.enqueue().job_id)
        assert record.state is JobState.FAILED
        assert "the result" in str(record.last_error)
    assert count(conn, "faultline.ledger") == 0


def test_a_result_whose_methods_raise_fails_its_own_attempt_only(app: Faultline) -> None:
    class Hostile(dict[str, Any]):
        def items(self) -> Any:
            raise RuntimeError("no items here")

    @app.task(name="hostile")
    async def hostile(job: Job) -> Any:
        return Hostile(a=1)

    @app.task(name="late")
    async def late(job: Job) -> Any:
        async with job.transaction():
            pass
        return Hostile(a=1)

    record = work_off(app, hostile.enqueue().job_id)
    assert (record.state, record.failed_reason) == (JobState.FAILED, "rejected")
    assert "no items here" in str(record.last_error)
    assert work_off(app, late.enqueue().job_id).state is JobState.SUCCEEDED


def test_a_run_that_is_repeated_after_a_conflict_starts_without_a_result(
    app: Faultline, conn: Connection
) -> None:
    tries: list[Any] = []

    @app.task()
    def clash(job: Job) -> None:
        tries.append(job.result)
        job.result = len(tries)
        if len(tries) == 1:
            raise psycopg.errors.SerializationFailure("again")
        if len(tries) == 2:
            job.result = None

    assert work_off(app, clash.enqueue().job_id).result is None
    assert tries == [None, None]
    assert value(conn, "SELECT attempts FROM faultline.jobs") == 1


def test_the_rule_for_results_in_one_table() -> None:
    assert [result_of(None, 1), result_of(2, 1), result_of(0, 1), result_of(None, None)] == [
        *(1, 2, 0),
        None,
    ]
    assert encode_result(None) is None
    assert discarded(None, own=None, returned=None) is None
    assert discarded("1", own=1, returned=None) is None
    assert discarded(None, own=None, returned=0) == "the handler returned a int"


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_a_plain_decorator_of_an_async_handler_fails_the_job_and_says_why(app: Faultline) -> None:
    def plain(handler: Any) -> Any:
        @functools.wraps(handler)
        def wrapper(job: Job) -> Any:
            return handler(job)

        return wrapper

    @app.task(name="wrapped")
    @plain
    async def wrapped(job: Job) -> int:
        return 1

    record = work_off(app, wrapped.enqueue().job_id)
    assert (record.state, record.failed_reason) == (JobState.FAILED, "rejected")
    assert "returned a coroutine that nothing awaits" in str(record.last_error)
    assert "must be async def too" in str(record.last_error)
