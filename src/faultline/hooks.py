"""Functions of the application around attempts, enqueues and worker processes.

A hook around something is a generator function with one `yield`. The code before it runs first, the code
after it runs last, and an exception of the handler is raised at the `yield`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterator,
    Sequence,
)
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from faultline.errors import InvalidInput
from faultline.events import Event, emit
from faultline.handler_errors import logged_traceback, summary
from faultline.job import Job
from faultline.model import JobRecord, JobSpec
from faultline.wording import with_article

if TYPE_CHECKING:
    from typing import NoReturn

T = TypeVar("T")
Around = Iterator[None] | AsyncIterator[None]  # what generator functions are declared to return
AroundAttempt = Callable[[Job], Around]
AroundEnqueue = Callable[[JobSpec], Around]
Entry = tuple[Callable[[Any], Around], Any, int]  # a hook, its argument, the number of its answer
ProcessHook = Callable[[], Awaitable[object] | object]
DeadHook = Callable[[JobRecord, Exception | None], Awaitable[object] | object]
A = TypeVar("A", bound=AroundAttempt)
E = TypeVar("E", bound=AroundEnqueue)
S = TypeVar("S", bound=ProcessHook)
D = TypeVar("D", bound=DeadHook)

SHUTDOWN_SECONDS = 5.0  # for all on_shutdown functions together
DEAD_SECONDS = 60.0  # for each on_dead function


class State(SimpleNamespace):
    """Values that an application's startup functions share with its handlers."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(
                f"app.state has no {name!r}: set it in a function with @app.on_startup"
            )


class Hooks:
    """The hooks of an application, in the order of their registration."""

    def __init__(self) -> None:
        self.startup: list[ProcessHook] = []
        self.shutdown: list[ProcessHook] = []
        self.dead: list[DeadHook] = []
        self.attempt: list[AroundAttempt] = []
        self.enqueue: list[AroundEnqueue] = []
        self.child_imports: list[str] = []  # modules for child processes, before those of handlers

    # ── around attempts and enqueues ─────────────────────────────────────────────────────────────

    def run_attempt(self, jobs: Sequence[Job], handler: Callable[[], T]) -> T:
        """Call a plain handler inside the hooks of its jobs, in its thread or process.

        A batch handler has many jobs, any other one."""
        return _run(self._around_attempts(jobs), handler, _no_answers)

    async def run_attempt_async(
        self, jobs: Sequence[Job], handler: Callable[[], Awaitable[T]]
    ) -> T:
        """Call an async handler inside its hooks, in its task on the event loop."""
        return await _run_async(self._around_attempts(jobs), handler, _no_answers)

    def _around_attempts(self, jobs: Sequence[Job]) -> list[Entry]:
        return [(hook, job, 0) for job in jobs for hook in self.attempt]

    def run_enqueue(self, jobs: Sequence[JobSpec], enqueue: Callable[[], T]) -> T:
        """Enqueue jobs inside their hooks; `enqueue` returns one answer, or a list."""
        return _run(self._around_each(jobs), enqueue, _answers)

    async def run_enqueue_async(
        self, jobs: Sequence[JobSpec], enqueue: Callable[[], Awaitable[T]]
    ) -> T:
        return await _run_async(self._around_each(jobs), enqueue, _answers)

    def _around_each(self, jobs: Sequence[JobSpec]) -> list[Entry]:
        return [(hook, job, number) for number, job in enumerate(jobs) for hook in self.enqueue]

    # ── with the worker ──────────────────────────────────────────────────────────────────────────

    async def start(self, number: int) -> None:
        """Call one startup function; an error ends the worker before it claims a job."""
        await _call(self.startup[number])

    async def start_all(self) -> None:
        for number in range(len(self.startup)):
            await self.start(number)

    async def stop(self) -> None:
        """Call the shutdown functions, the last one first; an error is logged only."""
        deadline = asyncio.get_running_loop().time() + SHUTDOWN_SECONDS
        for hook in reversed(self.shutdown):
            try:
                async with asyncio.timeout_at(deadline):
                    await _call(hook)
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                _log_failure("on_shutdown", hook, error)

    async def died(self, record: JobRecord, error: Exception | None) -> None:
        """Call the functions for dead jobs, plain ones in a thread; an error is logged."""
        for hook in self.dead:
            try:
                async with asyncio.timeout(DEAD_SECONDS):
                    if inspect.iscoroutinefunction(hook):
                        await hook(record, error)
                    else:
                        await asyncio.to_thread(hook, record, error)
            except asyncio.CancelledError:
                raise
            except BaseException as failure:
                _log_failure("on_dead", hook, failure, job_id=str(record.id), task=record.task)


class HookRegistry:
    """The decorators by which an application registers hooks, and `app.state`."""

    def __init__(self) -> None:
        self.hooks = Hooks()
        self.state = State()
        """What startup functions share with handlers: any attributes, one set per process."""

    def on_startup(self, hook: S) -> S:
        """Call a function once in each worker process, before it claims jobs.

        A child process of `process=True` calls it before its first job. An error ends the worker.
        """
        return _registered(self.hooks.startup, hook)

    def on_shutdown(self, hook: S) -> S:
        """Call a function when a worker process has ended its jobs; the last one first."""
        return _registered(self.hooks.shutdown, hook)

    def around_attempt(self, hook: A) -> A:
        """Run a generator function with one `yield` around each run of a handler.

        It gets the job and runs where the handler runs: in its thread for `def`, on the event loop for
        `async def`, in the child process for `process=True`. An async generator function surrounds async
        handlers only. An error before the `yield` fails the attempt.
        """
        return _registered(self.hooks.attempt, _checked(hook, "the job"))

    def around_enqueue(self, hook: E) -> E:
        """Run a generator function with one `yield` around each enqueue of a job.

        It gets the JobSpec, and `yield` returns the Enqueued. An async generator function surrounds the
        `_async` methods only. An error before the `yield` prevents the enqueue.
        """
        return _registered(self.hooks.enqueue, _checked(hook, "the JobSpec"))

    def on_dead(self, hook: D) -> D:
        """Call a function with the JobRecord and the error when a job has failed for good.

        Best effort: at most once, by the worker that wrote the failure. An error in it is logged.
        """
        return _registered(self.hooks.dead, hook)


H = TypeVar("H", bound=Callable[..., Any])


def _registered(hooks: list[Any], hook: H) -> H:
    if not callable(hook):
        raise InvalidInput(f"a hook must be a function, not {with_article(type(hook).__name__)}")
    hooks.append(hook)
    return hook


def _checked(hook: H, argument: str) -> H:
    if not (inspect.isgeneratorfunction(hook) or inspect.isasyncgenfunction(hook)):
        name = getattr(hook, "__qualname__", repr(hook))
        raise InvalidInput(
            f"{name} must be a generator function of {argument}, with one `yield`",
            hint="leave out @contextmanager: the decorator of the app takes the plain function",
        )
    return hook


async def _call(hook: ProcessHook) -> None:
    answer = hook()
    if inspect.isawaitable(answer):
        await answer


def _log_failure(kind: str, hook: Any, error: BaseException, **fields: Any) -> None:
    name = getattr(hook, "__qualname__", repr(hook))
    emit(
        Event.DEGRADED,
        reason=f"the {kind} function {name} failed",
        **fields,
        error=summary(error),
        traceback=logged_traceback(error),
    )


# ── generators ───────────────────────────────────────────────────────────────────────────────────


def _no_answers(value: object) -> Sequence[Any]:
    return (None,)


def _answers(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else (value,)


def _run(
    hooks: Sequence[Entry],
    call: Callable[[], T],
    answers: Callable[[T], Sequence[Any]],
) -> T:
    """Call a function inside generators. Async ones cannot run here and are left out."""
    entered: list[tuple[Any, int]] = []
    error: BaseException | None = None
    said: Sequence[Any] = ()
    try:
        for hook, subject, number in hooks:
            if inspect.isgeneratorfunction(hook):
                generator: Any = hook(subject)
                _begin(generator, hook)
                entered.append((generator, number))
        value = call()
        said = answers(value)
    except BaseException as raised:
        error = raised
    for generator, number in reversed(entered):
        error = _end(generator, None if error else said[number], error)
    if error is None:
        return value
    try:
        raise error
    finally:
        del error  # it refers to this frame


def _begin(generator: Generator[None, Any, object], hook: Any) -> None:
    try:
        next(generator)
    except StopIteration:
        raise InvalidInput(f"the hook {hook.__qualname__} did not yield") from None


def _end(
    generator: Generator[None, Any, object], answer: Any, error: BaseException | None
) -> BaseException | None:
    """Let a generator finish; returns the error that stands now, or None."""
    try:
        if error is None:
            generator.send(answer)
        else:
            generator.throw(error)
    except StopIteration:
        return error  # also if the generator caught it: the outcome stands
    except BaseException as raised:
        return error if _is_wrapped(raised, error) else raised
    try:
        with contextlib.suppress(Exception):  # it yields even now; the hooks around it must end
            generator.close()
    except BaseException as raised:
        return raised
    return _yielded_twice(generator, error)


async def _run_async(
    hooks: Sequence[Entry],
    call: Callable[[], Awaitable[T]],
    answers: Callable[[T], Sequence[Any]],
) -> T:
    entered: list[tuple[Any, int]] = []
    error: BaseException | None = None
    said: Sequence[Any] = ()
    try:
        for hook, subject, number in hooks:
            generator: Any = hook(subject)
            if inspect.isasyncgenfunction(hook):
                await _begin_async(generator, hook)
            else:
                _begin(generator, hook)
            entered.append((generator, number))
        value = await call()
        said = answers(value)
    except BaseException as raised:
        error = raised
    for generator, number in reversed(entered):
        answer = None if error else said[number]
        if hasattr(generator, "athrow"):
            error = await _end_async(generator, answer, error)
        else:
            error = _end(generator, answer, error)
    if error is None:
        return value
    try:
        raise error
    finally:
        del error


async def _begin_async(generator: AsyncGenerator[None, Any], hook: Any) -> None:
    try:
        await anext(generator)
    except StopAsyncIteration:
        raise InvalidInput(f"the hook {hook.__qualname__} did not yield") from None


async def _end_async(
    generator: AsyncGenerator[None, Any], answer: Any, error: BaseException | None
) -> BaseException | None:
    try:
        if error is None:
            await generator.asend(answer)
        else:
            await generator.athrow(error)
    except StopAsyncIteration:
        return error
    except BaseException as raised:
        return error if _is_wrapped(raised, error) else raised
    try:
        with contextlib.suppress(Exception):
            await generator.aclose()
    except BaseException as raised:  # a cancellation
        return raised
    return _yielded_twice(generator, error)


def _is_wrapped(raised: BaseException, error: BaseException | None) -> bool:
    """Whether a generator let a StopIteration through: Python makes it a RuntimeError."""
    return (
        error is not None
        and issubclass(type(error), StopIteration | StopAsyncIteration)
        and type(raised) is RuntimeError
        and raised.__cause__ is error
    )


def _yielded_twice(generator: Any, error: BaseException | None) -> InvalidInput:
    failure = InvalidInput(f"the hook {generator.__qualname__} yielded more than once")
    failure.__cause__ = error
    return failure
