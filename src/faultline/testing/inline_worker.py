"""The real worker, run inside a test until there is nothing left to do now."""

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
from faultline.testing.application import close_pool_here
from faultline.testing.attempted import Attempted, Logbook
from faultline.testing.shadow import shadow_of
from faultline.workers import Worker

T = TypeVar("T")

_LOOK_SECONDS = 0.005
_DEFAULT_TIMEOUT_SECONDS = 60.0
_DEFAULT_LIMIT = 1_000
_APPLICATION = "faultline testing"


class NotIdle(FaultlineError):
    """There was still work to do when the limit was reached."""

    code = "not_idle"


def run_one(
    app: Faultline,
    *,
    queues: Sequence[str] | None = None,
    raise_errors: bool = True,
    timeout_seconds: float = _DEFAULT_TIMEOUT_SECONDS,
) -> Attempted | None:
    """Run one job that is due, as a worker would; None when there is none."""
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
    """The same on the event loop of the caller, for handlers that share something with the test."""
    ended = await _run(app, queues, max_jobs=1, timeout_seconds=timeout_seconds)
    return _judged(ended, raise_errors=raise_errors)[0] if ended else None


def run_until_idle(
    app: Faultline,
    *,
    queues: Sequence[str] | None = None,
    raise_errors: bool = True,
    limit: int = _DEFAULT_LIMIT,
    timeout_seconds: float = _DEFAULT_TIMEOUT_SECONDS,
) -> list[Attempted]:
    """Run jobs, one after another, until none is due: also those that were enqueued meanwhile.

    Jobs for later, and retries that wait, are left where they are: see `advance`. An attempt that
    failed raises what its handler raised, once all is done, unless `raise_errors` is off.
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
        raise NotIdle(f"{limit:,} attempts did not finish the work; does a job enqueue itself?")
    return _judged(ended, raise_errors=raise_errors)


def _judged(ended: list[Attempted], *, raise_errors: bool) -> list[Attempted]:
    if raise_errors:
        for attempted in ended:
            attempted.raise_if_failed()
    return ended


def in_thread(work: Callable[[], Coroutine[Any, Any, T]], app: Faultline) -> T:
    """Run it on an event loop of its own: a test that is itself async may have one running here."""
    result: list[T] = []
    failure: list[BaseException] = []

    async def main() -> T:
        try:
            return await work()
        finally:
            await close_pool_here(app)  # of a handler that used enqueue_async

    def run() -> None:
        try:
            result.append(asyncio.run(main()))
        except BaseException as error:
            failure.append(error)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(run,), name="faultline-inline-worker")
    thread.start()
    thread.join()  # bounded by the time limit of the work itself
    if failure:
        raise failure[0]
    return result[0]


async def _run(
    app: Faultline, queues: Sequence[str] | None, *, max_jobs: int, timeout_seconds: float
) -> list[Attempted]:
    logbook = Logbook()
    shadow = shadow_of(app, logbook.wrap)
    settings = WorkerSettings(
        queues=tuple(queues or all_queues(app)),
        concurrency=1,
        claim_ahead=0,
        poll_seconds=0.05,
        max_jobs=max_jobs,
    )
    await work_until_idle(shadow, settings, timeout_seconds=timeout_seconds)
    with connect(app.database_url, application_name=_APPLICATION) as conn:
        return logbook.read(conn, settings.worker_id)


def all_queues(app: Faultline) -> list[str]:
    """Those of the tasks, and any other that a job waits in."""
    named = {DEFAULT_QUEUE, *(task.options.queue for task in app.tasks.values())}
    with connect(app.database_url, application_name=_APPLICATION) as conn:
        rows = conn.execute("SELECT DISTINCT queue FROM faultline.jobs").fetchall()
    return sorted(named | {queue for (queue,) in rows})


async def work_until_idle(
    app: Faultline, settings: WorkerSettings, *, timeout_seconds: float
) -> None:
    """Run a worker on this event loop until nothing is due in its queues and nothing is under way."""
    give_up_at = time.monotonic() + timeout_seconds
    gave_up = False

    async def stop_when_idle() -> None:
        nonlocal gave_up
        conn, _ = await open_session_async(app.database_url, application_name=_APPLICATION)
        async with conn:
            while await _is_busy(conn, settings):
                if time.monotonic() > give_up_at:
                    gave_up = True
                    worker.stop()  # the second time it stops at once
                    break
                await asyncio.sleep(_LOOK_SECONDS)
        worker.stop()

    worker = Worker(app, settings, companions=[stop_when_idle])
    await worker.run()
    if gave_up:
        raise NotIdle(f"not idle after {timeout_seconds:g} s")


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
