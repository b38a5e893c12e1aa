"""`async with app.worker()`: a worker on the event loop of another program."""

from __future__ import annotations

import asyncio
import functools
import signal
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, cast
from uuid import UUID

import psycopg
import pytest

from faultline import (
    Faultline,
    InvalidInput,
    Job,
    JobState,
    NoTasks,
    Retention,
    SchemaMismatch,
    WorkerSettings,
)
from tests.conftest import NewDatabase
from tests.running import Connection, EventTap, count, value
from tests.waiting import LIMIT_SECONDS, wait_until_async

P = ParamSpec("P")


def on_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test on an event loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def ended(app: Faultline, job_id: UUID) -> JobState:
    async def state() -> JobState | None:
        found = (await app.get_async(job_id)).state
        return found if found in (JobState.SUCCEEDED, JobState.FAILED) else None

    return cast(JobState, await wait_until_async(state, "the end of the job"))


@on_a_loop
async def test_jobs_run_during_the_block_and_the_worker_leaves_at_its_end(
    app: Faultline, conn: Connection
) -> None:
    @app.task()
    async def add(job: Job, a: int) -> int:
        return a + 1

    handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    async with app.worker(concurrency=2) as worker:
        enqueued = await add.enqueue_async(a=1)
        assert await ended(app, enqueued.job_id) is JobState.SUCCEEDED
        registered = value(conn, "SELECT id FROM faultline.workers")
        assert registered == worker.worker_id
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == handlers
    assert count(conn, "faultline.workers") == 0
    await app.aclose()


@on_a_loop
async def test_a_running_job_is_finished_at_the_end_of_the_block(app: Faultline) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    @app.task()
    async def slow(job: Job) -> str:
        begun.set()
        await may_end.wait()
        return "done"

    async with app.worker():
        enqueued = await slow.enqueue_async()
        await asyncio.wait_for(begun.wait(), LIMIT_SECONDS)
        asyncio.get_running_loop().call_later(0.2, may_end.set)
    assert (await app.get_async(enqueued.job_id)).result == "done"
    await app.aclose()


@on_a_loop
async def test_cancelling_the_block_twice_releases_the_jobs_at_once(app: Faultline) -> None:
    begun = asyncio.Event()

    @app.task()
    async def endless(job: Job) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def serve() -> None:
        async with app.worker(drain_seconds=600):
            await asyncio.Event().wait()

    serving = asyncio.create_task(serve())
    enqueued = await endless.enqueue_async()
    await asyncio.wait_for(begun.wait(), LIMIT_SECONDS)
    serving.cancel()
    await asyncio.sleep(0.2)  # long enough for a worker that does not drain to end
    assert not serving.done()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(serving, LIMIT_SECONDS)
    record = await app.get_async(enqueued.job_id)
    assert (record.state, record.attempts) == (JobState.QUEUED, 0)
    await app.aclose()


@on_a_loop
async def test_an_error_of_the_worker_cancels_the_block_and_is_raised(
    app: Faultline, conn: Connection, events: EventTap
) -> None:
    """The protocol is gone while the worker runs: no retry helps."""

    @app.task()
    async def idle(job: Job) -> None: ...

    async def serve() -> None:
        async with app.worker(settings=WorkerSettings(poll_seconds=0.05), reconciler=False):
            conn.execute("DROP FUNCTION faultline.claim CASCADE")
            await asyncio.Event().wait()

    with pytest.raises(SchemaMismatch):
        await asyncio.wait_for(serve(), LIMIT_SECONDS)
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
    assert any("ends the worker" in event["reason"] for event in events.of("degraded"))


@on_a_loop
async def test_an_error_in_the_block_is_raised_after_the_drain(
    app: Faultline, conn: Connection
) -> None:
    @app.task()
    async def idle(job: Job) -> None: ...

    with pytest.raises(KeyError):
        async with app.worker():
            raise KeyError
    assert count(conn, "faultline.workers") == 0


@on_a_loop
async def test_a_worker_with_a_limit_ends_before_the_block(app: Faultline) -> None:
    @app.task()
    async def idle(job: Job) -> None: ...

    enqueued = await idle.enqueue_async()
    async with app.worker(max_jobs=1) as worker:
        await asyncio.wait_for(worker.wait(), LIMIT_SECONDS)
        assert (await app.get_async(enqueued.job_id)).state is JobState.SUCCEEDED
    await app.aclose()


@pytest.mark.parametrize("is_same_database", [True, False], ids=["one_database", "two_databases"])
@on_a_loop
async def test_two_apps_work_in_one_process_at_once(
    database_url: str, new_database: NewDatabase, template: str, is_same_database: bool
) -> None:
    with new_database(template) as other_url:
        first = Faultline(database_url)
        second = Faultline(database_url if is_same_database else other_url)
        met = asyncio.Barrier(2)  # both run at the same time

        @first.task(name="one", queue="ones")
        async def one(job: Job) -> str:
            await met.wait()
            return "first"

        @second.task(name="two", queue="twos")
        async def two(job: Job) -> str:
            await met.wait()
            return "second"

        async with first.worker(), second.worker():
            ones, twos = await one.enqueue_async(), await two.enqueue_async()
            for app, job in ((first, ones), (second, twos)):
                assert await ended(app, job.job_id) is JobState.SUCCEEDED
        assert (await first.get_async(ones.job_id)).result == "first"
        assert (await second.get_async(twos.job_id)).result == "second"
        await first.aclose()
        await second.aclose()


@on_a_loop
async def test_the_worker_of_one_app_goes_on_when_the_database_of_another_fails(
    app: Faultline, new_database: NewDatabase, template: str, server_url: str
) -> None:
    with new_database(template) as other_url:
        other = Faultline(other_url)

        @app.task(name="mine")
        async def mine(job: Job) -> None: ...

        @other.task(name="theirs")
        async def theirs(job: Job) -> None: ...

        async with app.worker(), other.worker():
            before = await theirs.enqueue_async()
            assert await ended(other, before.job_id) is JobState.SUCCEEDED
            with psycopg.connect(server_url, autocommit=True) as admin:
                name = other_url.rpartition("/")[2]
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                    [name],
                )
            job = await mine.enqueue_async()
            assert await ended(app, job.job_id) is JobState.SUCCEEDED
        await app.aclose()
        await other.aclose()


@on_a_loop
async def test_an_app_without_tasks_is_refused(app: Faultline) -> None:
    with pytest.raises(NoTasks, match=r"has no tasks.*imports=.*autodiscover"):
        async with app.worker():
            pass


@on_a_loop
async def test_a_database_without_the_schema_is_refused(empty_database_url: str) -> None:
    app = Faultline(empty_database_url)

    @app.task()
    async def idle(job: Job) -> None: ...

    with pytest.raises(SchemaMismatch):
        async with app.worker():
            pass


@on_a_loop
async def test_contradicting_arguments_are_refused(app: Faultline) -> None:
    with pytest.raises(InvalidInput, match="settings excludes concurrency"):
        app.worker(concurrency=3, settings=WorkerSettings())
    with pytest.raises(InvalidInput, match="retention is applied by the reconciler"):
        app.worker(reconciler=False, retention=Retention())


@on_a_loop
async def test_a_worker_runs_once(app: Faultline) -> None:
    @app.task()
    async def idle(job: Job) -> None: ...

    worker = app.worker()
    async with worker:
        pass
    with pytest.raises(InvalidInput, match="was started before"):
        async with worker:
            pass


@on_a_loop
async def test_run_worker_is_refused_where_a_loop_runs(app: Faultline) -> None:
    with pytest.raises(InvalidInput, match="use `async with app"):
        app.run_worker()


def test_run_worker_is_refused_in_another_thread(app: Faultline) -> None:
    async def in_thread() -> None:
        await asyncio.to_thread(app.run_worker)

    with pytest.raises(InvalidInput, match="main thread only"):
        asyncio.run(in_thread())
