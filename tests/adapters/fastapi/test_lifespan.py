"""The worker's lifespan has the application's own around it; errors restart it."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ParamSpec

import psycopg
import pytest
from starlette.applications import Starlette

from faultline import DatabaseUnavailable, Faultline, InvalidInput, InvalidSettings, Job, NoTasks
from faultline.adapters import starlette
from faultline.adapters.starlette import mounted_lifespan, worker_lifespan
from faultline.postgres.migrate import migrate
from tests.running import EventTap
from tests.waiting import idle, wait_until_async

P = ParamSpec("P")
Conn = psycopg.Connection[Any]


def on_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test on an event loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def add_task(app: Faultline) -> Any:
    @app.task(name="add")
    async def add(job: Job, a: int) -> int:
        return a + 1

    return add


async def result_of(task: Any) -> Any:
    return await (await task.enqueue_async(a=1)).result_async(timeout=40)


@on_a_loop
async def test_the_applications_own_lifespan_surrounds_the_worker(app: Faultline) -> None:
    add, story = add_task(app), []

    @app.on_startup
    def up() -> None:
        story.append("worker up")

    @app.on_shutdown
    def down() -> None:
        story.append("worker down")

    @asynccontextmanager
    async def own(host: Any) -> AsyncIterator[dict[str, int]]:
        story.append("opened")
        yield {"answer": 42}
        story.append("closed")

    lifespan = worker_lifespan(app, lifespan=own)
    async with lifespan(Starlette()) as state:
        assert state == {"answer": 42}
        assert await result_of(add) == 2
    assert story == ["opened", "worker up", "worker down", "closed"]


@pytest.mark.slow
@on_a_loop
async def test_a_worker_that_an_error_has_ended_is_started_again(
    app: Faultline,
    conn: Conn,
    database_url: str,
    events: EventTap,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(starlette, "_PAUSE_SECONDS", (0.1,))
    add = add_task(app)
    async with worker_lifespan(app)(Starlette()):
        assert await result_of(add) == 2
        conn.execute("DROP SCHEMA faultline CASCADE")
        await wait_until_async(lambda: restarts(events) > 0, "the end of the worker")
        migrate(database_url)
        await app.aclose()  # the plans of the former functions
        assert await result_of(add) == 2


def restarts(events: EventTap) -> int:
    return sum("a new worker starts" in str(each.get("reason")) for each in events.of("degraded"))


@on_a_loop
async def test_an_error_at_the_start_is_raised_and_the_own_lifespan_ends(app: Faultline) -> None:
    story = []

    @asynccontextmanager
    async def own(host: Any) -> AsyncIterator[None]:
        try:
            yield
        finally:
            story.append("closed")

    with pytest.raises(NoTasks, match="has no tasks"):
        async with worker_lifespan(app, lifespan=own)(Starlette()):
            story.append("not here")
    assert story == ["closed"]


@on_a_loop
async def test_an_error_of_a_startup_function_ends_the_start(app: Faultline) -> None:
    add_task(app)

    @app.on_startup
    def fail() -> None:
        raise ValueError("no cache")

    with pytest.raises(ValueError, match="no cache"):
        async with worker_lifespan(app)(Starlette()):
            pytest.fail("the server has started")


@on_a_loop
async def test_a_worker_that_an_operator_has_drained_stays_ended(
    app: Faultline, conn: Conn, events: EventTap
) -> None:
    add = add_task(app)
    async with worker_lifespan(app)(Starlette()):
        assert await result_of(add) == 2
        conn.execute("SELECT faultline.request_drain(NULL)")
        await wait_until_async(lambda: events.of("worker_stopped"), "the end of the worker")
        assert restarts(events) == 0


@on_a_loop
async def test_a_lifespan_that_is_cancelled_twice_releases_its_jobs_at_once(
    app: Faultline, events: EventTap
) -> None:
    started = asyncio.Event()

    @app.task(name="linger")
    async def linger(job: Job) -> None:
        started.set()
        await idle(3600)

    async def serve() -> None:
        async with worker_lifespan(app, drain_seconds=3600)(Starlette()):
            await idle(3600)

    job_id = (await linger.enqueue_async()).job_id
    serving = asyncio.create_task(serve())
    await started.wait()
    serving.cancel()
    await wait_until_async(lambda: events.of("worker_draining"), "the drain")
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert (await app.get_async(job_id)).state == "queued"
    await app.aclose()


def test_wrong_arguments_are_an_error_where_they_are_written(app: Faultline) -> None:
    with pytest.raises(InvalidSettings):
        worker_lifespan(app, concurrency=0)
    with pytest.raises(InvalidInput):
        worker_lifespan(app, concurrency=1, settings=app.worker()._settings)


def test_the_arguments_are_those_of_a_worker() -> None:
    ours = inspect.signature(worker_lifespan).parameters.keys() - {"queue", "lifespan"}
    workers = inspect.signature(Faultline.worker).parameters.keys() - {"self"}
    assert ours == workers - {"max_jobs"}


@on_a_loop
async def test_a_lifespan_without_a_worker_runs_none(app: Faultline, conn: Conn) -> None:
    add_task(app)
    async with mounted_lifespan()(Starlette()):
        assert conn.execute("SELECT count(*) FROM faultline.workers").fetchone() == (0,)


def test_events_are_records_of_the_logging_module(
    app: Faultline, caplog: pytest.LogCaptureFixture
) -> None:
    add_task(app)

    async def serve() -> None:
        async with worker_lifespan(app)(Starlette()):
            pass

    with caplog.at_level("INFO", "faultline"):
        asyncio.run(serve())
    assert any(each.getMessage().startswith("worker_started ") for each in caplog.records)


def test_an_unreachable_database_is_an_error_of_the_enqueue() -> None:
    app = Faultline("postgresql://u@127.0.0.1:1/none", enqueue_timeout_seconds=1)
    add = add_task(app)
    with pytest.raises(DatabaseUnavailable):
        asyncio.run(result_of(add))
