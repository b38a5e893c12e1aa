"""A worker on an event loop that runs already, as an async context manager."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType

from faultline.app import Faultline
from faultline.config import Retention, WorkerSettings
from faultline.errors import FaultlineError, InvalidInput
from faultline.events import Event, emit
from faultline.postgres.errors import driver_errors
from faultline.postgres.migrate import require_fence, require_schema
from faultline.workers.worker import Worker
from faultline.workers.worker_process import load_tasks, make_worker


class RunningWorker:
    """Runs a worker, and usually a reconciler, during its `async with` block.

    At the end of the block the worker drains: running jobs get `drain_seconds`, then they are released. If
    the block's task is cancelled meanwhile, they are released at once.

    The block begins when the startup functions have ended; an error of one is raised there. A later error
    that ends the worker cancels the block, and is raised at its end.
    """

    def __init__(
        self, app: Faultline, settings: WorkerSettings, *, retention: Retention | None
    ) -> None:
        self._app = app
        self._settings = settings
        self._retention = retention
        self._worker: Worker | None = None
        self._running: asyncio.Task[bool] | None = None
        self._block: asyncio.Task[object] | None = None
        self._has_cancelled_block = False
        self._is_ending = False

    def __repr__(self) -> str:
        running = self._running
        state = "not started" if running is None else "ended" if running.done() else "running"
        return f"<RunningWorker {self.worker_id}, {state}>"

    @property
    def worker_id(self) -> str:
        return self._settings.worker_id

    async def wait(self) -> None:
        """Wait until the worker has ended, for example after `max_jobs`."""
        if self._running is not None:
            await asyncio.wait({self._running})

    async def __aenter__(self) -> RunningWorker:
        if self._running is not None:
            raise InvalidInput("this worker was started before", hint="call app.worker() again")
        load_tasks(self._app)
        # In a thread: it may start the embedded server, and waits for the database.
        url = await asyncio.to_thread(lambda: self._app.database_url)
        await asyncio.to_thread(require_schema, url, require_fence)
        self._worker = make_worker(self._app, self._settings, self._retention)
        self._block = asyncio.current_task()
        self._running = asyncio.create_task(self._worker.run(), name="faultline-worker")
        await self._startup(self._worker, self._running)
        self._running.add_done_callback(self._ended)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._worker is None or self._running is None:
            return
        self._is_ending = True
        was_cancelled = isinstance(error, asyncio.CancelledError)
        if self._has_cancelled_block:
            was_cancelled = await self._absorb_cancellation(was_cancelled=was_cancelled)
        self._worker.stop()
        while not self._running.done():
            try:
                await asyncio.wait({self._running})
            except asyncio.CancelledError:
                was_cancelled = True
                self._worker.stop()  # the second one releases the jobs that still run
        failure = None if self._running.cancelled() else self._running.exception()
        if failure is not None:
            with driver_errors():
                raise failure
        if was_cancelled and not isinstance(error, asyncio.CancelledError):
            raise asyncio.CancelledError

    async def _startup(self, worker: Worker, running: asyncio.Task[bool]) -> None:
        """Wait for the startup functions, and raise the error of one that fails."""
        started = asyncio.create_task(worker.has_started.wait())
        try:
            await asyncio.wait({running, started}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            worker.stop()
            await asyncio.wait({running})
            raise
        finally:
            started.cancel()
        if running.done() and (error := running.exception()) is not None:
            with driver_errors():
                raise error

    def _ended(self, running: asyncio.Task[bool]) -> None:
        if running.cancelled() or (error := running.exception()) is None or self._is_ending:
            return
        reason = error.message if isinstance(error, FaultlineError) else str(error)
        emit(Event.DEGRADED, reason=f"an error ends the worker: {' '.join(reason.split())}")
        if self._block is not None and not self._block.done():
            self._has_cancelled_block = True
            self._block.cancel()

    async def _absorb_cancellation(self, *, was_cancelled: bool) -> bool:
        """Undo the block's cancellation; True if another task cancelled it too."""
        if asyncio.current_task() is not self._block or self._block is None:
            return was_cancelled  # a fixture: the task that began the block has ended
        if not was_cancelled:  # the block ended before the cancellation reached it
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        return self._block.uncancel() > 0
