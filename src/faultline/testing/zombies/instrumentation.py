"""Wraps handlers so that they report each point they reach to a monitor."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any

from faultline.job import Job
from faultline.task import Task
from faultline.testing.zombies.monitor import AttemptKilled, AttemptMonitor, current_monitor

MakeMonitor = Callable[[Task[Any, Any], Job], AttemptMonitor | None]


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


def instrument_handler(task: Task[Any, Any], make_monitor: MakeMonitor) -> Callable[..., Any]:
    """Return the task's handler, monitored if `make_monitor` returns a monitor."""

    def plain(job: Job, *args: Any, **kwargs: Any) -> Any:
        monitor = make_monitor(task, job)
        if monitor is None:
            return task.handler(job, *args, **kwargs)
        reset = current_monitor.set(monitor)
        try:
            value = task.handler(job, *args, **kwargs)
            monitor.end()
            return value
        except BaseException as error:
            _log_error(monitor, error)
            raise
        finally:
            monitor.ended.set()
            current_monitor.reset(reset)

    async def awaited(job: Job, *args: Any, **kwargs: Any) -> Any:
        monitor = make_monitor(task, job)
        if monitor is None:
            return await task.handler(job, *args, **kwargs)
        reset = current_monitor.set(monitor)
        try:
            value = await InstrumentedCoroutine(task.handler(job, *args, **kwargs), monitor)
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
