"""Runs a worker in the main thread: signals, exit code, and an end within bounds."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from faultline.app import Faultline
from faultline.config import Retention, WorkerSettings
from faultline.errors import InvalidInput, NoTasks
from faultline.events import Event, emit, log
from faultline.health.writer import HealthFileWriter
from faultline.logs import use_event_log
from faultline.postgres.errors import driver_errors
from faultline.postgres.migrate import require_fence, require_schema
from faultline.reconciler import Reconciler
from faultline.sentry import sentry
from faultline.termination import Termination
from faultline.tracing.export import exporting, flush
from faultline.workers import stacks
from faultline.workers.supervisor import DRAINED, DRAINED_STUCK
from faultline.workers.worker import Worker

_CLOSING_SECONDS = 5.0


def load_tasks(app: Faultline) -> None:
    """Import the application's tasks; refuse an application that has none."""
    app.import_tasks()
    if not app.tasks:
        raise NoTasks(
            "the application has no tasks, so the worker has nothing to run",
            hint='name the modules that define them: Faultline(imports=["shop.mail"]), or'
            ' app.autodiscover("shop")',
        )


def make_worker(
    app: Faultline, settings: WorkerSettings, retention: Retention | None, **options: Any
) -> Worker:
    """Make a worker, with a reconciler in its process unless `retention` is None."""
    if retention is None:
        return Worker(app, settings, **options)
    reconciler = Reconciler(
        app.database_url,
        retention,
        hooks=app.hooks,
        tasks=app.tasks,
        worker_id=settings.worker_id,
    )
    return Worker(
        app,
        settings,
        companions=[reconciler.run],
        on_registration=reconciler.worker_registered,
        **options,
    )


_DEFAULT_THRESHOLDS = (700, 2_000)  # of Python 3.11 and 3.12; from 3.13 on
_GARBAGE_THRESHOLD = 20_000


class WorkerProcess:
    """A worker, and a reconciler unless `retention` is None.

    `supervised_by` is a pipe that its supervisor holds open. `is_whole_process` says that the process ends
    after the worker: then threads that handlers left behind cannot delay its end.
    """

    def __init__(
        self,
        app: Faultline,
        settings: WorkerSettings,
        *,
        retention: Retention | None,
        health: HealthFileWriter | None = None,
        supervised_by: int | None = None,
        is_whole_process: bool = True,
    ) -> None:
        self._app = app
        self._settings = settings
        self._retention = retention
        self._health = health
        self._supervised_by = supervised_by
        self._is_whole_process = is_whole_process

    def run(self, termination: Termination) -> int:
        """Run until the worker stops; returns the exit code of the process."""
        load_tasks(self._app)  # first: the application may configure logging and tracing itself
        use_event_log()
        url = self._app.database_url  # the app may set another URL than the environment's
        require_schema(url, require_fence)
        worker: Worker = make_worker(
            self._app,
            self._settings,
            self._retention,
            end_process=lambda: self._end_process(worker),
        )
        rare = _rare_garbage_collection() if self._is_whole_process else contextlib.nullcontext()
        with rare, exporting("worker"):
            return termination.run(
                lambda: self._run(worker, termination), loop_factory=_fastest_loop()
            )

    async def _run(self, worker: Worker, termination: Termination) -> int:
        with termination.listening(worker.stop, on_signal=worker.stop_requested):
            if self._supervised_by is not None:
                loop = asyncio.get_running_loop()
                loop.add_reader(self._supervised_by, _orphaned, worker, self._supervised_by)
            if self._health is not None:
                self._health.follow(worker.vitals)
            try:
                is_clean = await worker.run()
            except Exception as error:
                if not worker.is_stuck:
                    raise
                reason = f"an error ends the worker: {' '.join(str(error).split())}"
                emit(Event.DEGRADED, reason=reason)
                is_clean = False
            if not is_clean:
                self._end_process(worker)
            if self._is_whole_process:
                self._bound_closing(worker)
        return DRAINED if self._is_drained(worker) else 0

    def _is_drained(self, worker: Worker) -> bool:
        return worker.drain_was_requested and self._supervised_by is not None

    def _end_process(self, worker: Worker) -> NoReturn:
        """End the process with exit code 1 although handlers are still running.

        A normal exit would wait for them for ever: Python joins their threads, and asyncio waits for their
        tasks when it closes the loop.
        """
        if self._health is not None:
            self._health.stop()
        flush()
        sentry.flush()
        sys.stderr.flush()
        os._exit(DRAINED_STUCK if self._is_drained(worker) else 1)

    def _bound_closing(self, worker: Worker) -> None:
        """Give threads that handlers left behind _CLOSING_SECONDS, then end the process."""

        def watch() -> None:
            time.sleep(_CLOSING_SECONDS)
            for thread in threading.enumerate():
                if not thread.daemon and thread is not threading.main_thread():
                    stack = stacks.of_thread(thread.ident)
                    emit(
                        Event.DEGRADED,
                        reason=f"the thread {thread.name} does not end: the process exits without it",
                        frame=None if stack is None else stack.frame,
                        stack=None if stack is None else stack.text,
                    )
            self._end_process(worker)

        threading.Thread(target=watch, name="faultline-closing", daemon=True).start()


def run_in_main_thread(
    app: Faultline, settings: WorkerSettings, *, retention: Retention | None
) -> None:
    """Run a worker until SIGTERM, SIGINT or a drain request, then return."""
    if threading.current_thread() is not threading.main_thread():
        raise InvalidInput(
            "run_worker handles signals, so it runs in the main thread only",
            hint="use `async with app.worker()` on an event loop of your thread",
        )
    if asyncio._get_running_loop() is not None:
        raise InvalidInput(
            "run_worker blocks, and an event loop runs in this thread",
            hint="use `async with app.worker()` here",
        )
    if not log.is_open:
        log.open()
    process = WorkerProcess(app, settings, retention=retention, is_whole_process=False)
    with driver_errors(), Termination(is_temporary=True) as termination:
        process.run(termination)


def _orphaned(worker: Worker, supervised_by: int) -> None:
    """Stop the worker: the supervisor's end of the pipe was closed."""
    asyncio.get_running_loop().remove_reader(supervised_by)
    emit(Event.DEGRADED, reason="the supervisor is gone: draining")
    worker.stop()


def _fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop if it is installed (`pip install faultline-queue[fast]`), else None."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module(
        "uvloop"
    ).new_event_loop
    return factory


@contextlib.contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """Raise the garbage collector's threshold, unless the application has set one.

    A hundred short jobs in flight are thousands of objects, and almost none of them is garbage that only
    the collector can free. Python would look at them after every 700 new objects.
    """
    newest, *older = gc.get_threshold()
    if newest not in _DEFAULT_THRESHOLDS:
        yield
        return
    gc.collect()
    gc.freeze()  # what was imported is never garbage
    gc.set_threshold(_GARBAGE_THRESHOLD, *older)
    try:
        yield
    finally:
        gc.unfreeze()  # so that Python finalizes these objects when the process ends
