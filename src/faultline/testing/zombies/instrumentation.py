"""Wraps handlers and psycopg, so that each point is reported to a monitor.

The driver's `Connection.wait` is patched: psycopg sends everything through it. This covers the connections
of `job.transaction()`, the user's own and those of libraries on top of psycopg, if the handler, its asyncio
tasks or its asyncio threads use them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from faultline.batch import Batch
from faultline.job import Job
from faultline.postgres import sessions
from faultline.postgres.driver import (
    AsyncConnection,
    Connection,
    OperationalError,
    TransactionStatus,
)
from faultline.task import Task
from faultline.testing.zombies.monitor import (
    AttemptKilled,
    AttemptMonitor,
    current_monitor,
    disconnected_loops,
)
from faultline.testing.zombies.points import describe_call

MakeMonitor = Callable[[Task[Any, Any], Sequence[Job]], AttemptMonitor | None]
_patch_lock = threading.Lock()


_log = logging.getLogger("psycopg")


class InstrumentedCoroutine:
    """Awaits a coroutine, and reports each of its suspensions to the monitor."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], monitor: AttemptMonitor) -> None:
        self._coroutine = coroutine
        self._monitor = monitor

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[Any], Any] = self._coroutine.send
        sent_value: Any = None
        while True:
            try:
                awaited_object = step(sent_value)
            except StopIteration as returned:
                return returned.value
            try:
                self._monitor.suspended(self._coroutine)
                sent_value = yield awaited_object
                step = self._coroutine.send
            except BaseException as error:
                step, sent_value = self._coroutine.throw, error


def jobs_of(job: Job | Batch[Any]) -> Sequence[Job]:
    """The jobs of one call of a handler."""
    return job.jobs if isinstance(job, Batch) else (job,)


def instrument_handler(task: Task[Any, Any], make_monitor: MakeMonitor) -> Callable[..., Any]:
    """Return the task's handler, monitored if `make_monitor` returns a monitor."""

    handler: Callable[..., Any] = task.handler

    def plain(job: Job | Batch[Any], /, *args: Any, **kwargs: Any) -> Any:
        monitor = make_monitor(task, jobs_of(job))
        if monitor is None:
            return handler(job, *args, **kwargs)
        reset = current_monitor.set(monitor)
        try:
            value = handler(job, *args, **kwargs)
            monitor.end()
            return value
        except BaseException as error:
            _log_error(monitor, error)
            raise
        finally:
            monitor.ended.set()
            current_monitor.reset(reset)

    async def awaited(job: Job | Batch[Any], /, *args: Any, **kwargs: Any) -> Any:
        monitor = make_monitor(task, jobs_of(job))
        if monitor is None:
            return await handler(job, *args, **kwargs)
        reset = current_monitor.set(monitor)
        try:
            value = await InstrumentedCoroutine(handler(job, *args, **kwargs), monitor)
            monitor.end()
            return value
        except BaseException as error:
            _log_error(monitor, error)
            raise
        finally:
            monitor.ended.set()
            current_monitor.reset(reset)

    return awaited if task.is_async else plain


def _log_error(monitor: AttemptMonitor, error: BaseException) -> None:
    if not isinstance(error, AttemptKilled):
        message = " ".join(str(error).split()) or "no message"
        monitor.log(f"ends in {type(error).__name__}: {message}"[:100])


@dataclass(frozen=True)
class PsycopgSession:
    conn: sessions.Connection | sessions.AsyncConnection

    @property
    def is_idle(self) -> bool:
        return self.conn.pgconn.transaction_status == TransactionStatus.IDLE

    def end(self) -> None:
        self.conn.pgconn.finish()

    def break_off(self) -> None:
        self.end()
        raise OperationalError("server closed the connection unexpectedly (injected by zombies)")


@contextlib.contextmanager
def patched_driver() -> Iterator[None]:
    """Report every call of an instrumented handler to its monitor."""
    with _patch_lock:
        wait_sync_original, wait_async_original = (
            Connection.wait,
            AsyncConnection.wait,
        )

        def wait(self: Any, gen: Any, *args: Any, **kwargs: Any) -> Any:
            monitor = current_monitor.get()
            if monitor is None:
                return wait_sync_original(self, gen, *args, **kwargs)
            session = PsycopgSession(self)
            point = monitor.before_call(session, describe_call(gen, is_idle=session.is_idle))
            result = wait_sync_original(self, gen, *args, **kwargs)
            if point is not None:
                monitor.after_call(session, point)
            return result

        async def wait_async(self: Any, gen: Any, *args: Any, **kwargs: Any) -> Any:
            monitor = current_monitor.get()
            if monitor is None:
                if asyncio.get_running_loop() in disconnected_loops:
                    PsycopgSession(self).break_off()
                return await wait_async_original(self, gen, *args, **kwargs)
            session = PsycopgSession(self)
            point = monitor.before_call(session, describe_call(gen, is_idle=session.is_idle))
            result = await wait_async_original(self, gen, *args, **kwargs)
            if point is not None:
                monitor.after_call(session, point)
            return result

        level = _log.level
        _log.setLevel(logging.CRITICAL)  # psycopg would log every broken session
        Connection.wait = wait  # type: ignore[method-assign]
        AsyncConnection.wait = wait_async  # type: ignore[method-assign]
        try:
            yield
        finally:
            Connection.wait = wait_sync_original  # type: ignore[method-assign]
            AsyncConnection.wait = wait_async_original  # type: ignore[method-assign]
            _log.setLevel(level)
