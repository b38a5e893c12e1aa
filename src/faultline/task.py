"""A task: a handler with its name and options, and the methods that enqueue it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from faultline.config import LONGEST_LEASE_SECONDS, LONGEST_RETRY_SECONDS
from faultline.errors import InvalidInput
from faultline.fenced_block import PrepareTransaction
from faultline.hooks import Hooks
from faultline.job import Job
from faultline.metrics import counted
from faultline.model import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY, DEFAULT_QUEUE, Enqueued
from faultline.payload import (
    check_idempotency_key,
    check_max_attempts,
    check_priority,
    check_queue_name,
    check_task_name,
    decode_payload,
)
from faultline.postgres.sessions import AsyncConnection, Connection
from faultline.retry_policy import DEFAULT_RETRY, RetryPolicy
from faultline.statements import protocol, statement
from faultline.tracing import Enqueueing, tracing

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Handler = Callable[Concatenate[Job, P], R]

RESERVED = frozenset({"idempotency_key", "run_at", "priority", "queue", "conn"})
MAX_BATCH = 10_000


class Executes(Protocol):
    """The part of an application that a task uses to run statements."""

    @property
    def prepare_transaction(self) -> PrepareTransaction | None: ...
    def execute(self, statement: statement.Statement[T], conn: Connection | None = None) -> T: ...
    def execute_async(
        self, statement: statement.Statement[T], conn: AsyncConnection | None = None
    ) -> Coroutine[Any, Any, T]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    queue: str = DEFAULT_QUEUE
    priority: int = DEFAULT_PRIORITY
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    retry: RetryPolicy = DEFAULT_RETRY
    lease_seconds: float | None = None  # None: the worker's setting
    timeout_seconds: float | None = None  # None: no limit
    process: bool = False  # run in a child process, which the worker can kill

    def __post_init__(self) -> None:
        check_queue_name(self.queue)
        check_priority(self.priority)
        check_max_attempts(self.max_attempts)
        _check_seconds("lease_seconds", self.lease_seconds, LONGEST_LEASE_SECONDS)
        _check_seconds("timeout_seconds", self.timeout_seconds, LONGEST_RETRY_SECONDS)


def _check_seconds(name: str, seconds: float | None, longest: float) -> None:
    if seconds is not None and not 0 < seconds <= longest:  # false for NaN too
        raise InvalidInput(
            f"{name} must be more than 0 and at most {longest:,} ({longest / 86_400:,.0f} days),"
            f" not {seconds:g}"
        )


class Task(Generic[P, R]):
    """A handler that `@app.task()` has registered; it can be enqueued and run."""

    def __init__(
        self,
        app: Executes,
        handler: Handler[P, R],
        name: str,
        options: TaskOptions,
        hooks: Hooks | None = None,
    ) -> None:
        self._app = app
        self.hooks = hooks
        self.handler = handler
        self.name = check_task_name(name)
        self.options = options
        self.is_async = inspect.iscoroutinefunction(handler)
        self._signature = _signature(handler)
        self._required, self._allowed = _names(self._signature)
        if options.process:
            _check_importable(handler, is_async=self.is_async)

    @property
    def is_importable(self) -> bool:
        """Whether another process can import this task by its handler's name."""
        handler: Any = self.handler
        if handler.__module__ == "__main__":  # importing it would run the user's script again
            return False
        module, qualname = sys.modules.get(handler.__module__), handler.__qualname__
        return module is not None and getattr(module, qualname, None) is self

    @property
    def prepare_transaction(self) -> PrepareTransaction | None:
        """The application's function that prepares each transaction of a handler."""
        return self._app.prepare_transaction

    def __call__(self, job: Job, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the handler directly, for tests and for other handlers."""
        return self.handler(job, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def attempt(self, job: Job, **arguments: Any) -> Any:
        """Run a plain handler, with the application's hooks around it."""
        handler: Callable[..., Any] = self.handler
        if not self.hooks:
            return handler(job, **arguments)
        with self.hooks.around(job):
            return handler(job, **arguments)

    async def attempt_async(self, job: Job, **arguments: Any) -> Any:
        handler: Callable[..., Any] = self.handler
        if not self.hooks:
            return await handler(job, **arguments)
        async with self.hooks.around_async(job):
            return await handler(job, **arguments)

    # Without options the type checker compares the arguments with the handler's. With an option they are
    # checked only at run time: ParamSpec cannot combine our keywords with the handler's.
    @overload
    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued: ...
    @overload
    def enqueue(self, *args: Any, idempotency_key: str | None, **kwargs: Any) -> Enqueued: ...
    @overload
    def enqueue(self, *args: Any, run_at: datetime | None, **kwargs: Any) -> Enqueued: ...
    @overload
    def enqueue(self, *args: Any, conn: Connection | None, **kwargs: Any) -> Enqueued: ...
    @overload
    def enqueue(self, *args: Any, priority: int, **kwargs: Any) -> Enqueued: ...
    @overload
    def enqueue(self, *args: Any, queue: str, **kwargs: Any) -> Enqueued: ...
    def enqueue(self, *args: Any, **kwargs: Any) -> Enqueued:
        """Enqueue one job with the handler's arguments.

        Options: idempotency_key, run_at, priority, queue, and conn for a connection of yours: the job
        exists if its transaction commits.
        """
        statement, conn, span = self._enqueue(args, kwargs)
        with span:
            return span.answered(self._app.execute(statement, conn))

    @overload
    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued: ...
    @overload
    async def enqueue_async(
        self, *args: Any, idempotency_key: str | None, **kwargs: Any
    ) -> Enqueued: ...
    @overload
    async def enqueue_async(
        self, *args: Any, run_at: datetime | None, **kwargs: Any
    ) -> Enqueued: ...
    @overload
    async def enqueue_async(
        self, *args: Any, conn: AsyncConnection | None, **kwargs: Any
    ) -> Enqueued: ...
    @overload
    async def enqueue_async(self, *args: Any, priority: int, **kwargs: Any) -> Enqueued: ...
    @overload
    async def enqueue_async(self, *args: Any, queue: str, **kwargs: Any) -> Enqueued: ...
    async def enqueue_async(self, *args: Any, **kwargs: Any) -> Enqueued:
        statement, conn, span = self._enqueue(args, kwargs)
        with span:
            return span.answered(await self._app.execute_async(statement, conn))

    def enqueue_many(
        self,
        payloads: Iterable[Mapping[str, Any]],
        *,
        idempotency_keys: Sequence[str | None] | None = None,
        run_at: datetime | None = None,
        conn: Connection | None = None,
    ) -> list[Enqueued]:
        """Enqueue many jobs in one round trip; a payload is one job's arguments."""
        statement, span = self._enqueue_many(payloads, idempotency_keys, run_at)
        with span:
            return span.answered(self._app.execute(statement, conn))

    async def enqueue_many_async(
        self,
        payloads: Iterable[Mapping[str, Any]],
        *,
        idempotency_keys: Sequence[str | None] | None = None,
        run_at: datetime | None = None,
        conn: AsyncConnection | None = None,
    ) -> list[Enqueued]:
        statement, span = self._enqueue_many(payloads, idempotency_keys, run_at)
        with span:
            return span.answered(await self._app.execute_async(statement, conn))

    def arguments(self, payload_json: str) -> dict[str, Any]:
        """The handler's arguments by name; InvalidInput if the payload does not fit them."""
        payload = decode_payload(payload_json)
        if type(payload) is not dict or not self._takes(payload):
            try:
                self._signature.bind(None, **payload)
            except TypeError as error:
                raise InvalidInput(f"the payload does not fit {self.name}: {error}") from None
        return cast(dict[str, Any], payload)

    def _takes(self, payload: dict[str, Any]) -> bool:
        """A fast check: `Signature.bind` costs more than the rest of a claim."""
        return self._required <= payload.keys() <= self._allowed

    def _enqueue(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[statement.Statement[Enqueued], Any, Enqueueing]:
        given = {name: kwargs.pop(name) for name in RESERVED & kwargs.keys()}
        payload = self._payload(args, kwargs)
        key = given.get("idempotency_key")
        queue = check_queue_name(given.get("queue", self.options.queue))
        span = tracing.enqueueing(self.name, queue)
        statement = protocol.enqueue(
            self.name,
            payload,
            queue=queue,
            priority=check_priority(given.get("priority", self.options.priority)),
            max_attempts=self.options.max_attempts,
            run_at=_check_aware(given.get("run_at")),
            idempotency_key=None if key is None else check_idempotency_key(key),
            trace_context=span.carrier,
        )
        return counted(statement, queue), given.get("conn"), span

    def _enqueue_many(
        self,
        payloads: Iterable[Mapping[str, Any]],
        idempotency_keys: Sequence[str | None] | None,
        run_at: datetime | None,
    ) -> tuple[statement.Statement[list[Enqueued]], Enqueueing]:
        given = list(payloads)
        if not all(isinstance(payload, Mapping) for payload in given):
            raise InvalidInput("each payload must be a dict of one job's arguments")
        arguments = [self._payload((), dict(payload)) for payload in given]
        if len(arguments) > MAX_BATCH:
            raise InvalidInput(
                f"{len(arguments):,} jobs are too many for one call",
                hint=f"the limit is {MAX_BATCH:,}",
            )
        if isinstance(idempotency_keys, str) or not isinstance(idempotency_keys, Sequence | None):
            raise InvalidInput(
                "idempotency_keys must be a list with a key or None for each payload"
            )
        for key in idempotency_keys or ():
            if key is not None:
                check_idempotency_key(key)
        span = tracing.enqueueing(self.name, self.options.queue, len(arguments))
        statement = protocol.enqueue_many(
            self.name,
            arguments,
            queue=self.options.queue,
            priority=self.options.priority,
            max_attempts=self.options.max_attempts,
            run_at=_check_aware(run_at),
            idempotency_keys=idempotency_keys,
            trace_context=span.carrier,
        )
        return counted(statement, self.options.queue), span

    def _payload(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name, checked against the handler before the job is stored."""
        if not args and self._takes(kwargs):
            return kwargs
        try:
            bound = self._signature.bind(None, *args, **kwargs)
        except TypeError as error:
            raise InvalidInput(f"cannot enqueue {self.name}: {error}") from None
        payload: dict[str, Any] = {}
        for position, (name, value) in enumerate(bound.arguments.items()):
            if self._signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                payload.update(value)
            elif position > 0:  # the first is the job
                payload[name] = value
        return payload


def _signature(handler: Callable[..., Any]) -> inspect.Signature:
    signature = inspect.signature(handler)
    parameters = list(signature.parameters.values())
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    name = getattr(handler, "__qualname__", repr(handler))
    if not parameters or parameters[0].kind not in positional:
        raise InvalidInput(f"{name} must take the job as its first argument: def {name}(job, …)")
    for parameter in parameters[1:]:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise InvalidInput(f"{name}: argument {parameter} cannot be passed by name")
        if parameter.name in RESERVED:
            raise InvalidInput(
                f"{name}: the argument name {parameter.name} is reserved for enqueue"
            )
    return signature


def _names(signature: inspect.Signature) -> tuple[set[str], set[str]]:
    """The names of required arguments, and of all named arguments."""
    parameters = list(signature.parameters.values())[1:]  # the first is the job
    named = [p for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD]
    required = {p.name for p in named if p.default is inspect.Parameter.empty}
    return required, {p.name for p in named}


def _check_importable(handler: Callable[..., Any], *, is_async: bool) -> None:
    if is_async:
        raise InvalidInput(f"{handler.__qualname__}: process=True is for plain `def` handlers")
    if "<locals>" in handler.__qualname__:
        raise InvalidInput(
            f"{handler.__qualname__}: process=True needs a function that can be imported by name",
            hint="define it at the top of its module",
        )


def _check_aware(run_at: datetime | None) -> datetime | None:
    if run_at is not None and not isinstance(run_at, datetime):
        raise InvalidInput(f"run_at must be a datetime, not a {type(run_at).__name__}")
    if run_at is not None and run_at.tzinfo is None:
        raise InvalidInput("run_at needs a time zone", hint="datetime.now(timezone.utc) + …")
    return run_at
