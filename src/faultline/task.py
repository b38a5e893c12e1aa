"""A task: a handler with its name and options, and the methods that enqueue it."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from faultline.arguments import ArgumentCodec
from faultline.batch_settings import BatchSettings
from faultline.config import LONGEST_RETRY_SECONDS
from faultline.enqueue_options import EnqueueOptions, lease_seconds_of, seconds_of
from faultline.enqueueable import Enqueueable
from faultline.errors import InvalidInput
from faultline.fenced_block import PrepareTransaction
from faultline.handler_signatures import misfit, signature_of
from faultline.hooks import Hooks
from faultline.job import Job
from faultline.limits import (
    Limit,
    Rate,
    as_limit,
    declared_limits,
    keyed_arguments,
)
from faultline.model import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_PRIORITY,
    DEFAULT_QUEUE,
    Enqueued,
    JobSpec,
)
from faultline.payload import (
    check_idempotency_key,
    check_max_attempts,
    check_priority,
    check_queue_name,
    check_task_name,
    decode_payload,
    encode_json,
)
from faultline.retry_policy import DEFAULT_RETRY, RetryPolicy
from faultline.unique import Unique, check_unique
from faultline.user_connections import AnyConnection
from faultline.wording import with_article

P = ParamSpec("P")
R = TypeVar("R")
Handler = Callable[Concatenate[Job, P], R]


# What other queues call the method that enqueues a job.
_NAMES_ELSEWHERE = frozenset(
    ("delay", "apply_async", "send", "kiq", "push", "defer", "submit", "perform_async", "schedule")
)


class EnqueuesJobs(Protocol):
    """The part of an application that a task uses to enqueue its jobs."""

    session_makers: dict[str, Any]

    @property
    def prepare_transaction(self) -> PrepareTransaction | None: ...
    def enqueue(self, job: JobSpec, *, conn: AnyConnection | None = None) -> Enqueued: ...
    def enqueue_async(
        self, job: JobSpec, *, conn: AnyConnection | None = None
    ) -> Coroutine[Any, Any, Enqueued]: ...
    def enqueue_many(
        self, jobs: Sequence[JobSpec], *, conn: AnyConnection | None = None
    ) -> list[Enqueued]: ...
    def enqueue_many_async(
        self, jobs: Sequence[JobSpec], *, conn: AnyConnection | None = None
    ) -> Coroutine[Any, Any, list[Enqueued]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    queue: str = DEFAULT_QUEUE
    priority: int = DEFAULT_PRIORITY
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    retry: RetryPolicy = DEFAULT_RETRY
    lease_seconds: float | None = None  # None: the worker's setting
    timeout_seconds: float | None = None  # None: no limit
    unique: Unique | None = None  # bound to the task's arguments
    process: bool = False  # run in a child process, which the worker can kill
    concurrency: Limit | int | None = None
    rate: Rate | None = None
    batch: BatchSettings | None = None  # of a batch handler

    def __post_init__(self) -> None:
        check_queue_name(self.queue)
        check_priority(self.priority)
        check_max_attempts(self.max_attempts)
        lease_seconds_of("lease", self.lease_seconds)
        seconds_of("timeout", self.timeout_seconds, LONGEST_RETRY_SECONDS)
        if not isinstance(self.retry, RetryPolicy):
            raise InvalidInput(
                f"retry must be a RetryPolicy, not {with_article(type(self.retry).__name__)}",
                hint="max_attempts=3 is the number of attempts; retry=RetryPolicy(base_seconds=3) the waits",
            )
        if not isinstance(self.process, bool):
            raise InvalidInput(
                f"process must be True or False, not {with_article(type(self.process).__name__)}"
            )
        if self.unique is not None:
            check_unique(self.unique)


class Task(Enqueueable[P], Generic[P, R]):
    """A handler that `@app.task` has registered; it can be enqueued and run."""

    def __init__(
        self,
        app: EnqueuesJobs,
        handler: Handler[P, R],
        name: str,
        settings: TaskSettings,
        hooks: Hooks | None = None,
        *,
        name_problem: str | None = None,
    ) -> None:
        super().__init__(self, EnqueueOptions())
        self.app = app
        self.hooks = hooks
        self.handler = handler
        self.name = check_task_name(name)
        self.settings = settings
        self._name_problem = name_problem
        self.is_async = inspect.iscoroutinefunction(handler)
        self._signature, annotated = self._describe(handler, settings)
        self._required, self._allowed = _names(self._signature)
        self.limits = declared_limits(
            f"task:{self.name}", settings.concurrency, settings.rate, task=self.name
        )
        self.limit_arguments = keyed_arguments(
            self.name, (as_limit(settings.concurrency), settings.rate), self._signature
        )
        self._all_types = ArgumentCodec(self.name, annotated, self._signature)
        self._codec = None if self._all_types.is_plain else self._all_types  # None: plain JSON
        if settings.unique is not None:
            self.settings = replace(settings, unique=self.bind_unique(settings.unique))
        if settings.process:
            _check_importable(handler, is_async=self.is_async)

    def _describe(
        self, handler: Callable[..., Any], settings: TaskSettings
    ) -> tuple[inspect.Signature, Callable[..., Any]]:
        """The arguments of the task's jobs, and the function that has their annotations."""
        return signature_of(handler), handler

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
        return self.app.prepare_transaction

    def bind_unique(self, given: Unique) -> Unique:
        """Check its names against the handler's arguments, and note their defaults."""
        unique = check_unique(given)
        parameters = list(self._signature.parameters.values())[1:]
        defaults = {
            each.name: each.default
            for each in parameters
            if each.default is not each.empty and (not unique.names or each.name in unique.names)
        }
        if defaults and self._codec is not None:
            defaults = self._codec.encode(defaults)
        encode_json(defaults, what=f"{self.name}: the defaults of unique jobs")
        return unique.bound(
            self.name,
            self._allowed,
            defaults,
            takes_any=any(each.kind is each.VAR_KEYWORD for each in parameters),
        )

    if TYPE_CHECKING:

        def __call__(self, job: Job, /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    else:

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """Call the handler directly, for tests and for other handlers."""
            if not args or not isinstance(args[0], Job):
                self._refuse_missing_job(args, kwargs)
            return self.handler(*args, **kwargs)

        def __getattr__(self, name: str) -> Any:
            advice = f"; to enqueue a job: {self._example()}" if name in _NAMES_ELSEWHERE else ""
            raise AttributeError(f"a Task has no attribute {name!r}{advice}", name=name, obj=self)

    def _refuse_missing_job(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Say how to enqueue, if a call without a job does not fit the handler."""
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(
                f"calling {self.name} runs its handler, whose first argument is the job: {error}; to"
                f" enqueue a job: {self._example()}"
            ) from None

    def _example(self) -> str:
        arguments = ", ".join(
            f"{name}=…" for name in self._signature.parameters if name in self._allowed
        )
        return f"{self.handler.__name__}.enqueue({arguments})"

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def attempt(self, job: Job, /, **arguments: Any) -> Any:
        """Run a plain handler, with the application's hooks around it."""
        handler: Callable[..., Any] = self.handler
        if self.hooks is None or not self.hooks.attempt:
            return handler(job, **arguments)
        return self.hooks.run_attempt([job], functools.partial(handler, job, **arguments))

    async def attempt_async(self, job: Job, /, **arguments: Any) -> Any:
        """The same for an async handler."""
        return await self.coroutine(job, **arguments)

    def coroutine(self, job: Job, /, **arguments: Any) -> Coroutine[Any, Any, Any]:
        """What `attempt_async` awaits, without a coroutine around it."""
        handler: Callable[..., Any] = self.handler
        if self.hooks is None or not self.hooks.attempt:
            coroutine: Coroutine[Any, Any, Any] = handler(job, **arguments)
            return coroutine
        call = functools.partial(handler, job, **arguments)
        return self.hooks.run_attempt_async([job], call)

    def arguments(self, payload_json: str) -> dict[str, Any]:
        """The handler's arguments by name; InvalidInput if the payload does not fit them."""
        payload = decode_payload(payload_json)
        if type(payload) is not dict or not self._takes(payload):
            try:
                self._signature.bind(None, **payload)
            except TypeError as error:
                given = payload if type(payload) is dict else ()
                says, hint = misfit(self._signature, given, error)
                raise InvalidInput(
                    f"the payload does not fit {self.name}: {says}", hint=hint
                ) from None
        if self._codec is None:
            plain: dict[str, Any] = payload
            return plain
        return self._codec.decode(payload)

    def check_arguments(self, payload_json: str) -> None:
        """Refuse a payload that does not fit the annotations, plain types included.

        For payloads that people write and other programs send: no type checker has seen them.
        """
        arguments = self.arguments(payload_json)
        if self._codec is None:
            self._all_types.check(arguments)

    def _takes(self, payload: dict[str, Any]) -> bool:
        """A fast check: `Signature.bind` costs more than the rest of a claim."""
        return self._required <= payload.keys() <= self._allowed

    def spec(
        self, options: EnqueueOptions, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> JobSpec:
        """A job of this task with these options and arguments."""
        return self._spec(options, self._payload(args, kwargs), options.idempotency_key)

    def specs(
        self,
        options: EnqueueOptions,
        payloads: Iterable[Mapping[str, Any]],
        idempotency_keys: Sequence[str | None] | None,
    ) -> Sequence[JobSpec]:
        """Jobs of this task with the same options, one for each payload."""
        given = list(payloads)
        others = [each for each in given if type(each) is not dict]  # isinstance takes longer
        if not all(isinstance(payload, Mapping) for payload in others):
            raise InvalidInput("each payload must be a dict of one job's arguments")
        if isinstance(idempotency_keys, str) or not isinstance(idempotency_keys, Sequence | None):
            raise InvalidInput(
                "idempotency_keys must be a list with a key or None for each payload"
            )
        if options.idempotency_key is not None:
            raise InvalidInput(
                "one idempotency key cannot belong to many jobs",
                hint="enqueue_many(payloads, idempotency_keys=[…])",
            )
        keys = [None] * len(given) if idempotency_keys is None else idempotency_keys
        if len(keys) != len(given):
            raise InvalidInput(
                f"{len(given)} payloads but {len(keys)} idempotency keys",
                hint="give one key for each payload, None where there is none",
            )
        for key in idempotency_keys or ():
            if key is not None:
                check_idempotency_key(key)
        checked = [self._payload((), dict(payload)) for payload in given]
        return self._spec(options, {}, None).copies(checked, keys)

    def _spec(
        self, options: EnqueueOptions, payload: dict[str, Any], idempotency_key: str | None
    ) -> JobSpec:
        if self._name_problem is not None:
            raise InvalidInput(
                f"cannot enqueue {self.name}: {self._name_problem}",
                hint=f"give the task a name that workers know: @app.task(name={self.handler.__name__!r})",
            )
        return job_spec(self.name, self.settings, options, payload, idempotency_key)

    def _payload(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name, checked against the handler before the job is stored."""
        if not args and self._takes(kwargs):
            return kwargs if self._codec is None else self._codec.encode(kwargs)
        try:
            bound = self._signature.bind(None, *args, **kwargs)
        except TypeError as error:
            says, hint = misfit(self._signature, kwargs, error)
            raise InvalidInput(f"cannot enqueue {self.name}: {says}", hint=hint) from None
        payload: dict[str, Any] = {}
        for position, (name, value) in enumerate(bound.arguments.items()):
            if self._signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                payload.update(value)
            elif position > 0:  # the first is the job
                payload[name] = value
        return payload if self._codec is None else self._codec.encode(payload)


def job_spec(
    task: str,
    settings: TaskSettings,
    options: EnqueueOptions,
    payload: Mapping[str, Any],
    idempotency_key: str | None,
) -> JobSpec:
    """A job of this task; each option that is given replaces the task's setting."""
    return JobSpec(
        task,
        settings.queue if options.queue is None else options.queue,
        settings.priority if options.priority is None else options.priority,
        settings.max_attempts if options.max_attempts is None else options.max_attempts,
        options.run_at,
        options.delay_seconds,
        options.expires_in_seconds,
        options.timeout_seconds,
        options.lease_seconds,
        settings.unique if options.unique is None else options.unique,
        options.tags,
        payload,
        idempotency_key,
    )


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
