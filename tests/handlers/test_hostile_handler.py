"""Whatever a handler does, its job ends with a reason and the worker continues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from faultline import Faultline, Job, JobRecord, JobState, RetryPolicy
from faultline.errors import AttemptTimeout
from tests.running import Connection, EventTap, count, ended, working

ONCE = {"max_attempts": 1}


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class OfNoFamily(BaseException):
    """Derives from BaseException directly, like gevent's Timeout."""


ERRORS: dict[str, Callable[[], BaseException]] = {
    "value": lambda: ValueError("plain"),
    "nul": lambda: ValueError("a\x00b"),
    "surrogate": lambda: ValueError("a\udc80b"),
    "ten_megabytes": lambda: ValueError("x" * 10_000_000),
    "unprintable": Unprintable,
    "system_exit": lambda: SystemExit(3),
    "keyboard_interrupt": KeyboardInterrupt,
    "cancelled": asyncio.CancelledError,
    "generator_exit": GeneratorExit,
    "of_no_family": OfNoFamily,
    "group": lambda: ExceptionGroup("many", [ValueError("one"), Unprintable()]),
    "timeout": TimeoutError,
    "attempt_timeout": lambda: AttemptTimeout("of another attempt"),
    "stop_iteration": StopIteration,
    "stop_async_iteration": StopAsyncIteration,
}
SAYS = {
    "value": "ValueError: plain",
    "nul": "a\\x00b",
    "surrogate": "a\\udc80b",
    "ten_megabytes": "ValueError: xxx",
    "unprintable": "Unprintable",
    "system_exit": "SystemExit(3)",
    "keyboard_interrupt": "KeyboardInterrupt",
    "cancelled": "cancel",
    "generator_exit": "GeneratorExit",
    "of_no_family": "OfNoFamily",
    "group": "ExceptionGroup: many",
    "timeout": "TimeoutError",
    "attempt_timeout": "of another attempt",
    "stop_iteration": "StopIteration",
    "stop_async_iteration": "StopAsyncIteration",
}
RESULTS: dict[str, Any] = {
    "object": object(),
    "nul": "a\x00b",
    "surrogate": {"deep": ["a\udc80b"]},
    "nan": float("nan"),
    "bytes": b"bytes",
    "two_megabytes": "x" * 2_000_000,
    "huge_number": 2**80,
    "key_of_number": {1: 2},
}


def then_the_next(app: Faultline, first: Any, **settings: Any) -> JobRecord:
    """The first job's end, once one worker has run it and the one after it."""

    @app.task(name="next")
    async def good(job: Job) -> str:
        return "ran"

    with working(app, concurrency=1, **settings) as worker:
        record = ended(app, first)
        following = ended(app, good.enqueue().job_id)
        assert following.result == "ran"
        assert worker.is_alive
    return record


@pytest.mark.parametrize("name", ERRORS)
def test_an_async_handler_may_raise_anything(
    app: Faultline, events: EventTap, conn: Connection, name: str
) -> None:
    @app.task(max_attempts=1)
    async def hostile(job: Job) -> None:
        raise ERRORS[name]()

    record = then_the_next(app, hostile.enqueue().job_id)
    assert (record.state, record.failed_reason) == (JobState.FAILED, "attempts_spent")
    assert SAYS[name] in str(record.last_error)
    assert len(str(record.last_error)) <= 10_000
    assert len(events.of("job_dead")) == 1
    assert count(conn, "faultline.ledger") == 1


@pytest.mark.parametrize("name", ERRORS)
def test_a_plain_handler_may_raise_anything(app: Faultline, events: EventTap, name: str) -> None:
    @app.task(max_attempts=1)
    def hostile(job: Job) -> None:
        raise ERRORS[name]()

    record = then_the_next(app, hostile.enqueue().job_id)
    assert (record.state, record.failed_reason) == (JobState.FAILED, "attempts_spent")
    assert SAYS[name] in str(record.last_error)
    assert len(events.of("job_dead")) == 1


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_that_cannot_be_stored_fails_the_job_and_says_why(
    app: Faultline, conn: Connection, name: str
) -> None:
    @app.task()
    async def odd(job: Job) -> Any:
        return RESULTS[name]

    record = then_the_next(app, odd.enqueue().job_id)
    assert (record.state, record.failed_reason) == (JobState.FAILED, "rejected")
    assert "the result" in str(record.last_error)
    assert count(conn, "faultline.ledger") == 1


@pytest.mark.parametrize(
    "payload", ['{"to": "x", "more": 1}', "{}", '{"to": "x", "job": 1}', '{"": 1}']
)
def test_a_payload_that_does_not_fit_the_handler_fails_the_job_and_says_so(
    app: Faultline, conn: Connection, payload: str
) -> None:
    @app.task(name="mail")
    async def mail(job: Job, to: str) -> None: ...

    call = "SELECT job_id FROM faultline.enqueue('mail', %s, max_attempts => 1)"
    [(job_id,)] = conn.execute(call, [payload]).fetchall()
    record = then_the_next(app, job_id)
    assert (record.state, record.failed_reason) == (JobState.FAILED, "attempts_spent")
    assert "the payload does not fit mail" in str(record.last_error)


@pytest.mark.parametrize(
    "number", ["1e400", "[" * 2000 + "]" * 2000], ids=["huge_number", "deeply_nested"]
)
def test_a_payload_that_only_the_database_can_read_fails_the_job_and_not_the_worker(
    app: Faultline, conn: Connection, number: str
) -> None:
    @app.task(name="mail")
    async def mail(job: Job, to: Any) -> None: ...

    call = "SELECT job_id FROM faultline.enqueue('mail', %s, max_attempts => 1)"
    [(job_id,)] = conn.execute(call, [f'{{"to": {number}}}']).fetchall()

    @app.task(name="next")
    async def good(job: Job) -> None: ...

    with working(app, concurrency=1) as worker:
        following = good.options(priority=9).enqueue().job_id
        assert ended(app, following).state is JobState.SUCCEEDED
        assert worker.is_alive
    state = conn.execute("SELECT state FROM faultline.jobs WHERE id = %s", [job_id]).fetchone()
    assert state in [("failed",), ("succeeded",)]


def test_a_retry_policy_of_any_size_gives_a_delay(app: Faultline) -> None:
    wild = RetryPolicy(base_seconds=1, factor=1e9, cap_seconds=5, jitter=0)
    assert [wild.delay_seconds(attempt) for attempt in (1, 2, 65, 1000)] == [1, 5, 5, 5]


def test_many_hostile_jobs_leave_no_lease_behind(app: Faultline, conn: Connection) -> None:
    @app.task(max_attempts=1)
    async def hostile(job: Job, name: str) -> None:
        raise ERRORS[name]()

    jobs = [hostile.enqueue(name=name).job_id for name in ERRORS]
    with working(app, concurrency=3):
        for job_id in jobs:
            ended(app, job_id)
    running = "SELECT count(*) FROM faultline.jobs WHERE state = 'running'"
    assert conn.execute(running).fetchone() == (0,)
