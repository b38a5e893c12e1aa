"""on_startup, on_shutdown, on_dead: when they are called, what their errors do."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from faultline import Faultline, Job, JobRecord, JobState, Reject, RetryPolicy
from faultline.config import Retention, WorkerSettings
from faultline.hooks import Hooks
from faultline.reconciler import Reconciler
from faultline.testing import run_one
from faultline.workers import Worker
from faultline.workers.worker_process import make_worker
from tests.running import Connection, EventTap, background, ended, expire, value, working
from tests.waiting import wait_until


def test_handlers_use_what_the_startup_functions_made(app: Faultline) -> None:
    steps: list[str] = []

    @app.on_startup
    def open_pool() -> None:
        app.state.pool = "a pool"
        steps.append("open pool")

    @app.on_startup
    async def open_client() -> None:
        app.state.loop = asyncio.get_running_loop()
        steps.append("open client")

    @app.on_shutdown
    def close_pool() -> None:
        steps.append("close pool")

    @app.on_shutdown
    async def close_client() -> None:
        steps.append("close client")

    @app.task()
    async def use(job: Job) -> str:
        assert app.state.loop is asyncio.get_running_loop()
        steps.append("handler")
        return str(app.state.pool)

    with working(app):
        assert ended(app, use.enqueue().job_id).result == "a pool"
        assert steps[:3] == ["open pool", "open client", "handler"]
    assert steps[3:] == ["close client", "close pool"]


def test_an_attribute_that_no_startup_function_set_is_named(app: Faultline) -> None:
    with pytest.raises(AttributeError, match=r"app\.state has no 'pool'.*on_startup"):
        _ = app.state.pool


def test_an_error_at_startup_ends_the_worker_before_it_claims(app: Faultline) -> None:
    closed: list[str] = []

    @app.on_startup
    def fail() -> None:
        raise ConnectionError("no cache")

    app.on_shutdown(lambda: closed.append("closed"))

    @app.task()
    def never(job: Job) -> None: ...

    job_id = never.enqueue().job_id
    worker = Worker(app, WorkerSettings())
    with pytest.raises(ConnectionError, match="no cache"):
        asyncio.run(worker.run())
    assert app.get(job_id).attempts == 0
    assert closed == []


def test_a_stop_ends_an_async_startup_function_that_hangs(app: Faultline) -> None:
    began, closed = threading.Event(), []

    @app.on_startup
    async def hang() -> None:
        began.set()
        await asyncio.Event().wait()

    app.on_shutdown(lambda: closed.append("closed"))
    with working(app):
        assert began.wait(30)
    assert closed == []


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1)])
def test_an_error_at_shutdown_is_logged_and_the_others_run(
    app: Faultline, events: EventTap, error: BaseException
) -> None:
    closed: list[str] = []
    app.on_shutdown(lambda: closed.append("first"))

    @app.on_shutdown
    def fail() -> None:
        raise error

    with working(app):
        pass
    assert closed == ["first"]
    [said] = [each for each in events.of("degraded") if "on_shutdown" in each["reason"]]
    assert "fail" in said["reason"]
    assert type(error).__name__ in said["error"]


def test_a_shutdown_function_that_hangs_is_given_up(
    app: Faultline, events: EventTap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faultline.hooks.SHUTDOWN_SECONDS", 0.05)

    @app.on_shutdown
    async def hang() -> None:
        await asyncio.Event().wait()

    with working(app):
        pass
    [said] = [each for each in events.of("degraded") if "on_shutdown" in each["reason"]]
    assert "TimeoutError" in said["error"]


def test_a_test_of_a_handler_runs_the_startup_functions(app: Faultline) -> None:
    @app.on_startup
    def begin() -> None:
        app.state.greeting = "hello"

    @app.task()
    def greet(job: Job) -> str:
        return str(app.state.greeting)

    greet.enqueue()
    attempted = run_one(app)
    assert attempted is not None
    assert attempted.result == "hello"


# ── on_dead ──────────────────────────────────────────────────────────────────────────────────────


def test_on_dead_is_called_once_for_a_job_whose_attempts_are_spent(app: Faultline) -> None:
    told: list[tuple[JobRecord, Exception | None, bool]] = []

    @app.on_dead
    def tell(record: JobRecord, error: Exception | None) -> None:
        told.append((record, error, threading.current_thread() is threading.main_thread()))

    @app.on_dead
    async def tell_async(record: JobRecord, error: Exception | None) -> None:
        asyncio.get_running_loop()
        told.append((record, error, False))

    @app.task(max_attempts=2, retry=RetryPolicy(base_seconds=0, cap_seconds=0))
    def fail(job: Job, amount: int) -> None:
        raise ValueError(f"attempt {job.attempt}")

    @app.task(max_attempts=5)
    async def reject(job: Job) -> None:
        raise Reject("of no use")

    with working(app):
        job_id = fail.enqueue(amount=7).job_id
        ended(app, job_id)
        rejected_id = reject.enqueue().job_id
        ended(app, rejected_id)
        wait_until(lambda: len(told) == 4)
    record, error, _ = told[0]
    assert (record.id, record.state, record.failed_reason) == (
        job_id,
        JobState.FAILED,
        "attempts_spent",
    )
    assert record.payload == {"amount": 7}
    assert str(error) == "attempt 2"
    assert told[1][0].id == job_id
    assert told[2][0].failed_reason == "rejected"


def test_an_error_of_on_dead_is_logged_and_the_others_are_called(
    app: Faultline, events: EventTap
) -> None:
    told: list[str] = []

    @app.on_dead
    def fail(record: JobRecord, error: Exception | None) -> None:
        raise SystemExit("no mail server")

    app.on_dead(lambda record, error: told.append(record.task))

    @app.task(name="doomed", max_attempts=1)
    def doomed(job: Job) -> None:
        raise ValueError

    with working(app):
        ended(app, doomed.enqueue().job_id)
        wait_until(lambda: told == ["doomed"])
    [said] = [each for each in events.of("degraded") if "on_dead" in each["reason"]]
    assert (said["task"], said["error"]) == ("doomed", "SystemExit: no mail server")


def test_the_leading_reconciler_calls_on_dead_for_a_job_that_dies_with_its_worker(
    conn: Connection, database_url: str, events: EventTap
) -> None:
    told: list[tuple[Any, ...]] = []
    hooks = Hooks()
    hooks.dead.append(lambda record, error: told.append((record.id, record.failed_reason, error)))
    job_id = value(conn, "SELECT job_id FROM faultline.enqueue('t', max_attempts => 1)")
    conn.execute("SELECT faultline.claim('gone', '{default}', 1, '1 hour')")
    expire(conn, job_id)
    with background(Reconciler(database_url, hooks=hooks, tasks={"t"}).run):
        wait_until(lambda: told)
    assert told == [(job_id, "poison", None)]
    [dead] = events.of("job_dead")
    assert (dead["task"], dead["attempt"], dead["token"]) == ("t", 1, 1)


def test_on_dead_is_not_called_for_jobs_of_another_application(
    conn: Connection, app: Faultline, events: EventTap
) -> None:
    told: list[str] = []
    app.on_dead(lambda record, error: told.append(record.task))

    @app.task(name="own")
    def own(job: Job) -> None: ...

    for task in ("foreign", "own"):
        # in a queue that the worker does not serve, so that its reconciler finds them
        enqueue = "SELECT job_id FROM faultline.enqueue(%s, queue => 'other', max_attempts => 1)"
        job_id = value(conn, enqueue, task)
        conn.execute("SELECT faultline.claim('gone', '{other}', 1, '1 hour')")
        expire(conn, job_id)
    settings = WorkerSettings(queues=["default"], poll_seconds=0.2)
    worker = make_worker(app, settings, Retention())
    with background(worker.run, stop=worker.stop):
        wait_until(lambda: len(events.of("job_dead")) == 2)
        wait_until(lambda: told)
    assert told == ["own"]


def test_on_dead_is_not_called_for_a_cancelled_job(app: Faultline) -> None:
    told: list[JobRecord] = []
    app.on_dead(lambda record, error: told.append(record))
    started = threading.Event()

    @app.task()
    async def wait(job: Job) -> None:
        started.set()
        await asyncio.Event().wait()

    with working(app, heartbeat_seconds=0.1):
        job_id = wait.enqueue().job_id
        assert started.wait(30)
        app.cancel(job_id)
        ended(app, job_id)
    assert told == []
