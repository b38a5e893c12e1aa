"""A stopping worker starts no more jobs, at whatever stage they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import Span, SpanProcessor, TracerProvider

from faultline import Faultline, Job, JobState
from faultline.config import WorkerSettings
from faultline.tracing import tracing
from faultline.workers import Worker
from tests.running import Connection, EventTap, background, expire
from tests.waiting import LIMIT_SECONDS, wait_until


@pytest.fixture
def when_an_attempt_begins() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Enable tracing with a provider that calls back into the test."""

    class CallBack(SpanProcessor):
        def __init__(self, call: Callable[[], None]) -> None:
            self._call = call

        def on_start(self, span: Span, parent_context: Context | None = None) -> None:
            if span.name.startswith("execute"):
                self._call()

    provider = TracerProvider(shutdown_on_exit=False)
    tracing.use(provider)
    yield lambda call: provider.add_span_processor(CallBack(call))
    tracing.use(None)
    provider.shutdown()


def work_until_it_leaves(app: Faultline, worker: Worker) -> None:
    with background(worker.run, stop=worker.stop) as running:
        wait_until(lambda: not running.is_alive, "the end of the worker")


def test_a_job_claimed_with_the_one_that_stops_the_worker_is_released(app: Faultline) -> None:
    started: list[str] = []

    @app.task()
    async def note(job: Job, name: str) -> None:
        started.append(name)
        worker.stop()

    first, second = (note.enqueue(name=name).job_id for name in ("first", "second"))
    worker = Worker(app, WorkerSettings(concurrency=2))
    work_until_it_leaves(app, worker)
    assert started == ["first"]
    assert app.get(first).state is JobState.SUCCEEDED
    record = app.get(second)
    assert (record.state, record.attempts) == (JobState.QUEUED, 0)


def test_a_job_whose_earlier_attempts_are_being_read_is_released(
    app: Faultline,
    conn: Connection,
    events: EventTap,
    when_an_attempt_begins: Callable[[Callable[[], Any]], None],
) -> None:
    """The worker reads earlier attempts for a trace; it may be stopped meanwhile."""
    started: list[int] = []

    @app.task()
    async def note(job: Job) -> None:
        started.append(job.attempt)

    job_id = note.enqueue().job_id
    conn.execute("SELECT faultline.claim('gone', '{default}', 1, '1 hour')")
    expire(conn, job_id)
    worker = Worker(app, WorkerSettings(concurrency=1))
    when_an_attempt_begins(worker.stop)
    work_until_it_leaves(app, worker)
    assert started == []
    assert app.get(job_id).state is JobState.QUEUED
    assert [line["job_id"] for line in events.of("job_released")] == [str(job_id)]


def test_a_second_cancellation_does_not_leave_sessions_open(
    app: Faultline, conn: Connection
) -> None:
    async def main() -> None:
        is_working, is_cancelled, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def slow_to_end() -> None:
            is_working.set()
            try:
                await asyncio.Event().wait()
            finally:
                is_cancelled.set()
                await may_end.wait()

        worker = Worker(app, WorkerSettings(), companions=[slow_to_end])
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(LIMIT_SECONDS):
            await is_working.wait()
            assert _sessions(conn) > 0
            running.cancel()
            await is_cancelled.wait()
            running.cancel()  # while the worker waits for its companion
            await asyncio.wait([running])
        assert running.cancelled()
        # The worker is still referenced, so the garbage collector has closed nothing.
        wait_until(lambda: _sessions(conn) == 0, "the end of the worker's sessions")
        may_end.set()

    asyncio.run(main())


def _sessions(conn: Connection) -> int:
    row = conn.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid() AND application_name LIKE 'faultline %'"
    ).fetchone()
    assert row is not None
    return int(row[0])
