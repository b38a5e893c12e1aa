"""Handlers that report where they are: coroutines are stepped by hand, plain functions run as they are."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any

from faultline.job import Job
from faultline.task import Task
from faultline.testing.zombies.watch import Buried, Watch, current

MakeWatch = Callable[[Task[Any, Any], Job], Watch | None]


class Stepped:
    """Awaits a coroutine, and looks at it each time that it gives way to the event loop."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], watch: Watch) -> None:
        self._coroutine = coroutine
        self._watch = watch

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[Any], Any] = self._coroutine.send
        given: Any = None
        while True:
            try:
                wanted = step(given)
            except StopIteration as returned:
                return returned.value
            try:
                self._watch.suspended(self._coroutine)
                given = yield wanted
                step = self._coroutine.send
            except BaseException as error:
                step, given = self._coroutine.throw, error


def watched(task: Task[Any, Any], make_watch: MakeWatch) -> Callable[..., Any]:
    """The task's handler, under a watch for the jobs that `make_watch` wants to see."""

    def plain(job: Job, *args: Any, **kwargs: Any) -> Any:
        watch = make_watch(task, job)
        if watch is None:
            return task.handler(job, *args, **kwargs)
        reset = current.set(watch)
        try:
            value = task.handler(job, *args, **kwargs)
            watch.end()
            return value
        except BaseException as error:
            _tell_error(watch, error)
            raise
        finally:
            watch.ended.set()
            current.reset(reset)

    async def awaited(job: Job, *args: Any, **kwargs: Any) -> Any:
        watch = make_watch(task, job)
        if watch is None:
            return await task.handler(job, *args, **kwargs)
        reset = current.set(watch)
        try:
            value = await Stepped(task.handler(job, *args, **kwargs), watch)
            watch.end()
            return value
        except BaseException as error:
            _tell_error(watch, error)
            raise
        finally:
            watch.ended.set()
            current.reset(reset)

    return awaited if task.is_async else plain


def _tell_error(watch: Watch, error: BaseException) -> None:
    if not isinstance(error, Buried):
        said = " ".join(str(error).split()) or "nothing more"
        watch.tell(f"ends in {type(error).__name__}: {said}"[:100])
