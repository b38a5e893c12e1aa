"""The methods that enqueue jobs of a task, with or without options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec

from faultline.config import LONGEST_RETRY_SECONDS
from faultline.enqueue_options import EnqueueOptions, Seconds, lease_seconds_of, seconds_of
from faultline.errors import InvalidInput
from faultline.model import Enqueued, JobSpec
from faultline.option_names import names_options
from faultline.payload import checked_tags
from faultline.unique import Unique
from faultline.user_connections import AnyConnection

if TYPE_CHECKING:
    from faultline.task import Task

P = ParamSpec("P")


class Enqueueable(Generic[P]):
    """A task, or a task with options; both enqueue jobs with typed arguments."""

    def __init__(self, task: Task[P, Any], options: EnqueueOptions) -> None:
        self._task = task
        self._options = options

    @names_options
    def options(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        run_at: datetime | None = None,
        delay: Seconds | None = None,
        expires_in: Seconds | None = None,
        idempotency_key: str | None = None,
        max_attempts: int | None = None,
        timeout: Seconds | None = None,
        lease: Seconds | None = None,
        unique: Unique | None = None,
        tags: Iterable[str] | None = None,
        conn: AnyConnection | None = None,
    ) -> ConfiguredTask[P]:
        """The same task with options: `charge.options(delay=60).enqueue(invoice=42)`.

        With `conn`, a connection of yours, the job exists if your transaction commits. A job that has not
        started within `expires_in` fails with the reason `expired`. `timeout`, `lease` and `unique` replace
        those of the task. Durations are seconds or a timedelta. `tags` are words for `app.jobs(tag=…)`.
        """
        given = {
            "queue": queue,
            "priority": priority,
            "run_at": run_at,
            "delay_seconds": seconds_of("delay", delay, LONGEST_RETRY_SECONDS, shortest=0),
            "expires_in_seconds": seconds_of("expires_in", expires_in, LONGEST_RETRY_SECONDS),
            "timeout_seconds": seconds_of("timeout", timeout, LONGEST_RETRY_SECONDS),
            "lease_seconds": lease_seconds_of("lease", lease),
            "idempotency_key": idempotency_key,
            "max_attempts": max_attempts,
            "unique": None if unique is None else self._task.bind_unique(unique),
            "tags": None if tags is None else checked_tags(tags),
            "conn": conn,
        }
        return ConfiguredTask(self._task, self._options.updated(given))

    def job(self, /, *args: P.args, **kwargs: P.kwargs) -> JobSpec:
        """A job for `app.enqueue_many`; nothing is stored yet."""
        if self._options.conn is not None:  # it would be enqueued outside that transaction
            raise InvalidInput(
                "conn belongs to the enqueue, not to a job",
                hint="app.enqueue_many([…], conn=conn)",
            )
        return self._task.spec(self._options, args, kwargs)

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Enqueue one job with the handler's arguments."""
        spec = self._task.spec(self._options, args, kwargs)
        return self._task.app.enqueue(spec, conn=self._options.conn)

    async def enqueue_async(self, /, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        spec = self._task.spec(self._options, args, kwargs)
        return await self._task.app.enqueue_async(spec, conn=self._options.conn)

    def enqueue_many(
        self,
        payloads: Iterable[Mapping[str, Any]],
        *,
        idempotency_keys: Sequence[str | None] | None = None,
    ) -> list[Enqueued]:
        """Enqueue many jobs in one round trip; a payload is one job's arguments."""
        specs = self._task.specs(self._options, payloads, idempotency_keys)
        return self._task.app.enqueue_many(specs, conn=self._options.conn)

    async def enqueue_many_async(
        self,
        payloads: Iterable[Mapping[str, Any]],
        *,
        idempotency_keys: Sequence[str | None] | None = None,
    ) -> list[Enqueued]:
        specs = self._task.specs(self._options, payloads, idempotency_keys)
        return await self._task.app.enqueue_many_async(specs, conn=self._options.conn)


class ConfiguredTask(Enqueueable[P]):
    """A task with options, made by `task.options(…)`."""

    def __repr__(self) -> str:
        return f"<ConfiguredTask {self._task.name} {self._options}>"
