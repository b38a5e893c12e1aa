"""The method of an application that defines a task with a batch handler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

from faultline.batch import Batch
from faultline.batch_settings import batch_settings
from faultline.batch_task import BatchTask
from faultline.config import LONGEST_RETRY_SECONDS
from faultline.enqueue_options import Seconds, lease_seconds_of, seconds_of
from faultline.limits import Limit, Rate
from faultline.model import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY, DEFAULT_QUEUE
from faultline.option_names import names_options
from faultline.retry_policy import DEFAULT_RETRY, RetryPolicy
from faultline.task import Task, TaskSettings
from faultline.unique import Unique

P = ParamSpec("P")
A = TypeVar("A")
R = TypeVar("R")

DEFAULT_MAX_SIZE = 100
DEFAULT_MAX_WAIT = 0.05


class BatchMethods:
    """A base class of `Faultline`."""

    def _register(
        self, handler: Callable[..., Any], name: str | None, settings: TaskSettings
    ) -> Task[..., Any]:
        raise NotImplementedError  # Faultline has it

    @overload
    def batch_task(self, handler: Callable[[Batch[dict[str, Any]]], R], /) -> BatchTask[..., R]: ...
    @overload
    def batch_task(
        self,
        *,
        arguments: Callable[P, A],
        max_size: int = DEFAULT_MAX_SIZE,
        max_wait: Seconds = DEFAULT_MAX_WAIT,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = DEFAULT_PRIORITY,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        retry: RetryPolicy = DEFAULT_RETRY,
        lease: Seconds | None = None,
        timeout: Seconds | None = None,
        unique: Unique | None = None,
        concurrency: Limit | int | None = None,
        rate: Rate | None = None,
    ) -> Callable[[Callable[[Batch[A]], R]], BatchTask[P, R]]: ...
    @overload
    def batch_task(
        self,
        *,
        max_size: int = DEFAULT_MAX_SIZE,
        max_wait: Seconds = DEFAULT_MAX_WAIT,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = DEFAULT_PRIORITY,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        retry: RetryPolicy = DEFAULT_RETRY,
        lease: Seconds | None = None,
        timeout: Seconds | None = None,
        unique: Unique | None = None,
        concurrency: Limit | int | None = None,
        rate: Rate | None = None,
    ) -> Callable[[Callable[[Batch[dict[str, Any]]], R]], BatchTask[..., R]]: ...
    @names_options
    def batch_task(
        self,
        handler: Callable[..., Any] | None = None,
        *,
        arguments: Callable[..., Any] | None = None,
        max_size: int = DEFAULT_MAX_SIZE,
        max_wait: Seconds = DEFAULT_MAX_WAIT,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = DEFAULT_PRIORITY,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        retry: RetryPolicy = DEFAULT_RETRY,
        lease: Seconds | None = None,
        timeout: Seconds | None = None,
        unique: Unique | None = None,
        concurrency: Limit | int | None = None,
        rate: Rate | None = None,
    ) -> Any:
        """Make a function a task that does up to `max_size` of its jobs in one call.

        The handler gets a Batch. A worker collects jobs for at most `max_wait` after the first one.
        `arguments` is a class, for example a dataclass: `enqueue` takes its fields, and each job of the batch
        has an instance as `job.args`. Without it `job.args` is a dict. `timeout` is for the whole call. The
        other options are those of `task`, and are for each job.
        """
        settings = TaskSettings(
            queue=queue,
            priority=priority,
            max_attempts=max_attempts,
            retry=retry,
            lease_seconds=lease_seconds_of("lease", lease),
            timeout_seconds=seconds_of("timeout", timeout, LONGEST_RETRY_SECONDS),
            unique=unique,
            concurrency=concurrency,
            rate=rate,
            batch=batch_settings(max_size, max_wait, arguments),
        )

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            return self._register(function, name, settings)

        return register if handler is None else register(handler)
