"""Runs the real worker inside a test until no job is due."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from faultline.app import Faultline
from faultline.config import WorkerSettings
from faultline.errors import FaultlineError
from faultline.model import DEFAULT_QUEUE
from faultline.postgres.sessions import AsyncConnection, connect, open_session_async
from faultline.testing.application import close_pool_of_running_loop, instrumented_copy
from faultline.testing.attempts import Attempted, AttemptRecorder
from faultline.workers import Worker

T = TypeVar("T")

_POLL_SECONDS = 0.005
_DEFAULT_TIMEOUT_SECONDS = 60.0
_DEFAULT_LIMIT = 1_000
_APPLICATION = "faultline testing"


class NotIdle(FaultlineError):
    """Jobs were still due or running when the limit was reached."""

    code = "not_idle"


def run_one(
    app: Faultline,
    *,
    queues: Sequence[str] | None = None,
    raise_errors: bool = True,
    timeout_seconds: float = _DEFAULT_TIMEOUT_SECONDS,
) -> Attempted | None:
    """Run one due job as a worker would; return None if no job is due."""
    return in_thread(
        lambda: run_one_async(
            app, queues=queues, raise_errors=raise_errors, timeout_seconds=timeout_seconds
        ),
        app,
    )


async def run_one_async(
    app: Faultline,
    *,
    queues: Sequence[str] | None = None,
    raise_errors: bool = True,
    timeout_seconds: float = _DEFAULT_TIMEOUT_SECONDS,
) -> Attempted | None:
    """Run one due job on the caller's event loop, which the handler then shares."""
    ended = await _run(app, queues, max_jobs=1, timeout_seconds=timeout_seconds)
    return _raise_failures(ended, raise_errors=raise_errors)[0] if ended else None


def run_until_idle(
    app: Faultline,
    *,
    queues: Sequence[str] | None = None,
    raise_errors: bool = True,
    limit: int = _DEFAULT_LIMIT,
    timeout_seconds: float = _DEFAULT_TIMEOUT_SECONDS,
) -> list[Attempted]:
    """Run due jobs one after another until none is due, including newly enqueued ones.

    Scheduled jobs and retries that are not due yet do not run: see `advance`. If an attempt failed, its
    handler's exception is raised after all jobs have run, unless `raise_errors` is false.
    """
    return in_thread(
        lambda: run_until_idle_async(
            app,
            queues=queues,
            raise_errors=raise_errors,
            limit=limit,
            timeout_seconds=timeout_seconds,
        ),
        app,
    )


async def run_until_idle_async(
    app: Faultline,
    *,
    queues: Sequence[str] | None = None,
    raise_errors: bool = True,
    limit: int = _DEFAULT_LIMIT,
    timeout_seconds: float = _DEFAULT_TIMEOUT_SECONDS,
) -> list[Attempted]:
    ended = await _run(app, queues, max_jobs=limit + 1, timeout_seconds=timeout_seconds)
    if len(ended) > limit:
        raise NotIdle(
            f"jobs are still due after {limit:,} attempts; check whether a job enqueues itself"
        )
    return _raise_failures(ended, raise_errors=raise_errors)


def _raise_failures(ended: list[Attempted], *, raise_errors: bool) -> list[Attempted]:
    if raise_errors:
        for attempted in ended:
            attempted.raise_if_failed()
    return ended


def in_thread(work: Callable[[], Coroutine[Any, Any, T]], app: Faultline) -> T:
    """Run a coroutine in a new thread: an async test already runs a loop in this one."""
    result: list[T] = []
    failure: list[BaseException] = []

    async def main() -> T:
        try:
            return await work()
        finally:
            await close_pool_of_running_loop(app)  # opened by a handler that used enqueue_async

    def run() -> None:
        try:
            result.append(asyncio.run(main()))
        except BaseException as error:
            failure.append(error)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(run,), name="faultline-inline-worker")
    thread.start()
    thread.join()  # `work` has its own time limit
    if failure:
        raise failure[0]
    return result[0]


async def _run(
    app: Faultline, queues: Sequence[str] | None, *, max_jobs: int, timeout_seconds: float
) -> list[Attempted]:
    recorder = AttemptRecorder()
    copy = instrumented_copy(app, recorder.wrap)
    settings = WorkerSettings(
        queues=tuple(queues or all_queues(app)),
        concurrency=1,
        claim_ahead=0,
        poll_seconds=0.05,
        max_jobs=max_jobs,
    )
    await work_until_idle(copy, settings, timeout_seconds=timeout_seconds)
    with connect(app.database_url, application_name=_APPLICATION) as conn:
        return recorder.read(conn, settings.worker_id)


def all_queues(app: Faultline) -> list[str]:
    """Return the queues of the application's tasks and of all stored jobs."""
    named = {DEFAULT_QUEUE, *(task.options.queue for task in app.tasks.values())}
    with connect(app.database_url, application_name=_APPLICATION) as conn:
        rows = conn.execute("SELECT DISTINCT queue FROM faultline.jobs").fetchall()
    return sorted(named | {queue for (queue,) in rows})


async def work_until_idle(
    app: Faultline, settings: WorkerSettings, *, timeout_seconds: float
) -> None:
    """Run a worker on this event loop until its queues have no due and no running job."""
    deadline = time.monotonic() + timeout_seconds
    timed_out = False

    async def stop_when_idle() -> None:
        nonlocal timed_out
        conn, _ = await open_session_async(app.database_url, application_name=_APPLICATION)
        async with conn:
            while await _is_busy(conn, settings):
                if time.monotonic() > deadline:
                    timed_out = True
                    worker.stop()  # the second stop() ends it at once
                    break
                await asyncio.sleep(_POLL_SECONDS)
        worker.stop()

    worker = Worker(app, settings, companions=[stop_when_idle])
    await worker.run()
    if timed_out:
        raise NotIdle(
            f"jobs are still due or running after {timeout_seconds:g} s",
            hint="raise timeout_seconds if the jobs need longer",
        )


async def _is_busy(conn: AsyncConnection, settings: WorkerSettings) -> bool:
    cursor = await conn.execute(
        "SELECT EXISTS (SELECT FROM faultline.jobs WHERE queue = ANY (%(queues)s) AND"
        "  (state = 'queued' AND next_run_at <= clock_timestamp()"
        "   OR state = 'running' AND (lease_owner = %(worker)s"
        "                             OR lease_expires_at <= clock_timestamp())))",
        {"queues": list(settings.queues), "worker": settings.worker_id},
    )
    row = await cursor.fetchone()
    return bool(row and row[0])
