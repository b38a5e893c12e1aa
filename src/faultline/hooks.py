"""Functions of the user's that run before and after each attempt."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

from faultline.errors import InvalidInput
from faultline.events import Event, emit
from faultline.handler_errors import summary
from faultline.handler_interrupts import AttemptAborted
from faultline.job import Job

Hook = Callable[[Job], Awaitable[object] | object]
H = TypeVar("H", bound=Hook)


class Hooks:
    """The hooks of an application.

    Plain functions run for every attempt, `async def` functions only for async handlers.

    An error before an attempt fails the attempt. An error after it is logged, and changes nothing.
    """

    def __init__(self) -> None:
        self.before: list[Hook] = []
        self.after: list[Hook] = []

    def __bool__(self) -> bool:
        """Whether there is any hook; attempts skip the context manager if not."""
        return bool(self.before or self.after)

    def add(self, hooks: list[Hook], hook: H) -> H:
        if not callable(hook):
            raise InvalidInput("a hook must be a function of one argument, the job")
        hooks.append(hook)
        return hook

    @contextmanager
    def around(self, job: Job) -> Iterator[None]:
        """Call the hooks around a plain handler, in its thread or process."""
        try:
            for hook in self.before:
                if not inspect.iscoroutinefunction(hook):
                    hook(job)
            yield
        finally:
            for hook in reversed(self.after):
                if not inspect.iscoroutinefunction(hook):
                    with _logged(job):
                        hook(job)

    @asynccontextmanager
    async def around_async(self, job: Job) -> AsyncIterator[None]:
        """Call the hooks around an async handler, in its task on the event loop."""
        try:
            for hook in self.before:
                await _call(hook, job)
            yield
        finally:
            for hook in reversed(self.after):
                with _logged(job):
                    await _call(hook, job)


async def _call(hook: Hook, job: Job) -> None:
    answer = hook(job)
    if inspect.isawaitable(answer):
        await answer


@contextmanager
def _logged(job: Job) -> Iterator[None]:
    try:
        yield
    except (AttemptAborted, asyncio.CancelledError):
        raise  # the attempt is being aborted
    except BaseException as error:
        reason = "an after_attempt hook failed; the outcome of its attempt stands"
        emit(Event.DEGRADED, reason=reason, job_id=str(job.id), error=summary(error))
