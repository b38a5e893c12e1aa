"""Runs a worker, and what is mounted, in the lifespan of Starlette and FastAPI."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send

from faultline.app import Faultline
from faultline.config import Retention, WorkerSettings
from faultline.errors import FaultlineError, InvalidInput
from faultline.events import Event, emit
from faultline.postgres.driver import DriverError
from faultline.queue_shares import GivenShares
from faultline.workers.running_worker import RunningWorker

_PAUSE_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)  # before a worker that has failed is started again


def worker_lifespan(
    queue: Faultline,
    queues: Sequence[str] | GivenShares | None = None,
    *,
    lifespan: Lifespan[Any] | None = None,
    concurrency: int | None = None,
    drain_seconds: float | None = None,
    reconciler: bool = True,
    retention: Retention | None = None,
    settings: WorkerSettings | None = None,
) -> Lifespan[Any]:
    """A lifespan with a worker: `FastAPI(lifespan=worker_lifespan(queue))`.

    `lifespan` is the application's own. It is entered before the worker starts and left after the worker has
    drained, so handlers may use what it opens. The other arguments are those of `app.worker`.

    Events are written to the logger `faultline` of the logging module.

    An error at the start, such as no tasks or no schema, ends the server's start. An error that ends the
    worker later is logged as `degraded`, and a new worker starts after a pause. `faultline drain` ends the
    worker for good; the web application goes on.
    """

    def new_worker() -> RunningWorker:
        return queue.worker(
            queues,
            concurrency=concurrency,
            drain_seconds=drain_seconds,
            reconciler=reconciler,
            retention=retention,
            settings=settings,
        )

    new_worker()  # wrong arguments are an error here, not when the server starts

    @contextlib.asynccontextmanager
    async def with_worker(host: Any) -> AsyncIterator[Any]:
        async with mounted_lifespan(lifespan)(host) as state, _working(new_worker):
            try:
                yield state
            finally:
                await queue.producer.aclose()

    return with_worker


def mounted_lifespan(lifespan: Lifespan[Any] | None = None) -> Lifespan[Any]:
    """A lifespan without a worker, which starts the mounted API and dashboard."""

    @contextlib.asynccontextmanager
    async def with_mounted(host: Any) -> AsyncIterator[Any]:
        own = contextlib.nullcontext() if lifespan is None else lifespan(host)
        async with own as state, contextlib.AsyncExitStack() as stack:
            for mounted in _mounted_in(getattr(host, "routes", ())):
                await stack.enter_async_context(mounted.running())
            yield state

    return with_mounted


# ── the worker ───────────────────────────────────────────────────────────────────────────────────


@contextlib.asynccontextmanager
async def _working(new_worker: Callable[[], RunningWorker]) -> AsyncIterator[None]:
    has_started, stop = asyncio.Event(), asyncio.Event()
    working = asyncio.create_task(_work(new_worker, has_started, stop), name="faultline-lifespan")
    try:
        await _first_of(has_started.wait(), asyncio.wait({working}))
        if not working.done():
            yield
    finally:
        stop.set()
        await working  # passes a cancellation on: then running jobs are released at once
    if not has_started.is_set():
        raise FaultlineError("the worker ended before it had started")


async def _work(
    new_worker: Callable[[], RunningWorker], has_started: asyncio.Event, stop: asyncio.Event
) -> None:
    """Run workers until one of them ends by itself, or `stop` is set."""
    failures = 0
    while not stop.is_set():
        try:
            async with new_worker() as worker:
                has_started.set()
                await _first_of(worker.wait(), stop.wait())
            return
        except (FaultlineError, DriverError, OSError):  # the running worker has logged it
            if stop.is_set() or not has_started.is_set():
                raise
        pause_seconds = _PAUSE_SECONDS[min(failures, len(_PAUSE_SECONDS) - 1)]
        failures += 1
        emit(Event.DEGRADED, reason=f"a new worker starts in {pause_seconds:g} s")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause_seconds)


async def _first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    tasks = [asyncio.create_task(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# ── what is mounted ──────────────────────────────────────────────────────────────────────────────


class MountedApplication:
    """An application of Faultline that a host mounts.

    Starlette does not run the lifespan of what is mounted: `worker_lifespan` or `mounted_lifespan` does, or
    `async with mounted.running():` in a lifespan of the host.
    """

    def __init__(self, opened: Callable[[], AbstractAsyncContextManager[ASGIApp]]) -> None:
        self._opened = opened
        self._application: ASGIApp | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        if self._application is not None:  # mounted at two paths
            yield
            return
        async with self._opened() as self._application:
            try:
                yield
            finally:
                self._application = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._application is None:
            raise InvalidInput(
                "this application of Faultline is mounted but was not started",
                hint="FastAPI(lifespan=mounted_lifespan()), or worker_lifespan(…)",
            )
        await self._application(scope, receive, send)


def _mounted_in(routes: Iterable[Any]) -> Iterator[MountedApplication]:
    for route in routes:
        application = getattr(route, "app", None)
        if isinstance(application, MountedApplication):
            yield application
        else:
            yield from _mounted_in(getattr(route, "routes", ()))
