"""The application: a registry of tasks, and connections to enqueue jobs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar, Unpack, overload
from uuid import UUID

from faultline.batch_methods import BatchMethods
from faultline.batch_task import BatchTask
from faultline.config import LONGEST_RETRY_SECONDS
from faultline.embedded import ensure_running
from faultline.enqueue_methods import EnqueueMethods
from faultline.enqueue_options import Seconds, lease_seconds_of, seconds_of
from faultline.errors import (
    FaultlineError,
    InvalidInput,
    UnknownJob,
    UnknownTask,
)
from faultline.fenced_block import PrepareTransaction
from faultline.job_selection import FilterArguments, JobSelection, job_filter
from faultline.limit_methods import LimitMethods
from faultline.limits import (
    Declared,
    Limit,
    LimitArgument,
    Rate,
    declared_limits,
    merge_limits,
)
from faultline.model import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_PRIORITY,
    DEFAULT_QUEUE,
    Claim,
    JobRecord,
    JobState,
)
from faultline.option_names import names_options
from faultline.payload import check_queue_name, encode_payload
from faultline.postgres.answer_limit import LONGEST_ANSWER_SECONDS
from faultline.postgres.migrate import migrate
from faultline.postgres.url import redact, url_from_environment
from faultline.producer_pools import ProducerPools
from faultline.result_waiters import ResultWaiters
from faultline.retry_policy import DEFAULT_RETRY, RetryPolicy
from faultline.schedule_methods import ScheduleMethods
from faultline.schedules import Schedule
from faultline.statements import audit, jobs, protocol, queues
from faultline.statements.queues import QueueCount
from faultline.statements.statement import Statement
from faultline.suggestions import did_you_mean
from faultline.task import Handler, Task, TaskSettings
from faultline.task_imports import TaskImports
from faultline.task_names import check_handler, default_name, is_redefinition
from faultline.unique import Unique
from faultline.user_connections import AnyConnection, async_connection, sync_connection
from faultline.wording import count, listing, with_article
from faultline.worker_methods import WorkerMethods

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

ENQUEUE_TIMEOUT_SECONDS = 15.0
_MAX_NAMED_TASKS = 10


class Faultline(BatchMethods, EnqueueMethods, LimitMethods, ScheduleMethods, WorkerMethods):
    """Defines tasks, enqueues their jobs and operates on jobs and queues.

    Without a URL it uses DATABASE_URL or the file that DATABASE_URL_FILE names, and otherwise an
    embedded PostgreSQL for development, which it starts and migrates on first use.

    `enqueue_timeout_seconds` limits `enqueue` and the other plain methods, which then raise
    DatabaseUnavailable. A call without an answer may have taken effect: repeat it with the same
    idempotency key. Calls on a connection of yours (`conn=`) have no limit.

    `prepare_transaction(job, conn)` is called at the start of each block of `job.transaction()` and
    `job.fenced()` on a worker's connection, for example to set a role or a search_path. In `async def`
    handlers it may be async, and gets an async connection.

    `imports` names the modules that define tasks. They are imported when a worker starts or a command needs
    the tasks, so they may import the application.
    """

    def __init__(
        self,
        database_url: str | None = None,
        *,
        enqueue_timeout_seconds: float = ENQUEUE_TIMEOUT_SECONDS,
        prepare_transaction: PrepareTransaction | None = None,
        imports: Iterable[str] = (),
    ) -> None:
        if not 0 < enqueue_timeout_seconds <= LONGEST_ANSWER_SECONDS:
            raise InvalidInput(
                f"enqueue_timeout_seconds must be more than 0 and at most {LONGEST_ANSWER_SECONDS:g},"
                f" not {enqueue_timeout_seconds:g}"
            )
        if database_url is not None and not isinstance(database_url, str):
            raise InvalidInput(
                f"the database's URL must be a string, not {with_article(type(database_url).__name__)}",
                hint='Faultline("postgresql://user@host/database")',
            )
        super().__init__()
        self.prepare_transaction = prepare_transaction
        self._imports = TaskImports(imports)
        self._given_url = database_url
        self.producer = ProducerPools(lambda: self.database_url, enqueue_timeout_seconds)
        self._embedded_url: str | None = None
        self.session_makers: dict[str, Any] = {}  # of job.session(), by the adapter
        self._tasks: dict[str, Task[Any, Any]] = {}
        self._tasks_view = MappingProxyType(self._tasks)  # a worker asks for it for each job
        self._queue_limits: dict[str, Declared] = {}
        self._schedules: dict[str, Schedule] = {}
        self.on_result_discarded: Callable[[Claim, str], object] | None = None  # for tests
        self._waiters = ResultWaiters(self)

    def __repr__(self) -> str:
        url = self._given_url or self._embedded_url
        where = "DATABASE_URL or the embedded server" if url is None else redact(url)
        return f"<Faultline with {count(len(self._tasks), 'task')}, on {where}>"

    @property
    def database_url(self) -> str:
        if url := self._given_url or url_from_environment():
            return url
        if self._embedded_url is None:
            url = ensure_running()
            migrate(url)
            self._embedded_url = url
        return self._embedded_url

    # ── tasks ────────────────────────────────────────────────────────────────────────────────────

    @overload
    def task(self, handler: Handler[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = DEFAULT_PRIORITY,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        retry: RetryPolicy = DEFAULT_RETRY,
        lease: Seconds | None = None,
        timeout: Seconds | None = None,
        unique: Unique | None = None,
        process: bool = False,
        concurrency: Limit | int | None = None,
        rate: Rate | None = None,
    ) -> Callable[[Handler[P, R]], Task[P, R]]: ...
    @names_options
    def task(
        self,
        handler: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = DEFAULT_PRIORITY,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        retry: RetryPolicy = DEFAULT_RETRY,
        lease: Seconds | None = None,
        timeout: Seconds | None = None,
        unique: Unique | None = None,
        process: bool = False,
        concurrency: Limit | int | None = None,
        rate: Rate | None = None,
    ) -> Any:
        """Make a function a task: `@app.task` or `@app.task(queue="billing")`.

        `lease` and `timeout` are seconds or a timedelta. `concurrency` limits how many of its jobs run at
        once, in all workers together, and `rate` how many start in a period. `unique`
        limits equal jobs to one. A function that is defined
        again in its module, as in a notebook, replaces the former one. One `def` that runs twice defines
        two tasks, each of which needs a `name`.
        """
        settings = TaskSettings(
            queue=queue,
            priority=priority,
            max_attempts=max_attempts,
            retry=retry,
            lease_seconds=lease_seconds_of("lease", lease),
            timeout_seconds=seconds_of("timeout", timeout, LONGEST_RETRY_SECONDS),
            unique=unique,
            process=process,
            concurrency=concurrency,
            rate=rate,
        )

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            return self._register(function, name, settings)

        return register if handler is None else register(handler)

    def _register(
        self, handler: Callable[..., Any], name: str | None, settings: TaskSettings
    ) -> Task[..., Any]:
        check_handler(handler)
        own, problem = default_name(handler) if name is None else (name, None)
        kind = Task if settings.batch is None else BatchTask
        task: Task[..., Any] = kind(self, handler, own, settings, self.hooks, name_problem=problem)
        former = self._tasks.get(task.name)
        if former is not None and not is_redefinition(former.handler, handler):
            raise InvalidInput(
                f"two tasks are named {task.name}",
                hint="give one another name= (the first is the function"
                f" {former.handler.__module__}.{former.handler.__qualname__})",
            )
        self._tasks[task.name] = task
        return task

    def limit_queue(
        self, queue: str, *, concurrency: int | None = None, rate: Rate | None = None
    ) -> None:
        """Limit how many jobs of a queue run at once in all workers, or start in a period."""
        check_queue_name(queue)
        if concurrency is None and rate is None:
            raise InvalidInput("the limit of a queue needs concurrency, rate or both")
        self._queue_limits[queue] = declared_limits(f"queue:{queue}", concurrency, rate)

    def declared_limits(self) -> Declared:
        """The limits of all tasks and queues, which each worker declares when it starts."""
        of_tasks = [task.limits for task in self._tasks.values()]
        return merge_limits([*of_tasks, *self._queue_limits.values()])

    def limit_arguments(self) -> list[LimitArgument]:
        """The arguments of tasks that are keys of limits."""
        return [argument for task in self._tasks.values() for argument in task.limit_arguments]

    @property
    def tasks(self) -> Mapping[str, Task[Any, Any]]:
        return self._tasks_view

    def find_task(self, name: str) -> Task[Any, Any]:
        try:
            return self._tasks[name]
        except KeyError:
            raise UnknownTask(
                f"no task is named {name!r}",
                hint=did_you_mean(name, self._tasks)
                or f"this app has {listing(list(self._tasks), _MAX_NAMED_TASKS) or 'none'}",
            ) from None

    # ── jobs ─────────────────────────────────────────────────────────────────────────────────────

    def get(self, job_id: UUID | str) -> JobRecord:
        return _found(job_id, self.execute(jobs.get_job(_uuid(job_id))))

    async def get_async(self, job_id: UUID | str) -> JobRecord:
        return _found(job_id, await self.execute_async(jobs.get_job(_uuid(job_id))))

    def result(self, job_id: UUID | str, timeout: float | timedelta | None = None) -> Any:
        """Wait until a job has succeeded, and return its result.

        Raises JobFailed if it has failed, and ResultTimeout after `timeout` seconds: the job goes on.
        """
        return self._waiters.result(_uuid(job_id), timeout)

    async def result_async(
        self, job_id: UUID | str, timeout: float | timedelta | None = None
    ) -> Any:
        return await self._waiters.result_async(_uuid(job_id), timeout)

    def cancel(self, job_id: UUID | str, reason: str | None = None) -> JobState:
        """Cancel a job, so that it does not run (again); waits for a commit in progress."""
        return self.operate("cancel", f"job {job_id}", protocol.cancel(_uuid(job_id), reason))

    async def cancel_async(self, job_id: UUID | str, reason: str | None = None) -> JobState:
        verb = protocol.cancel(_uuid(job_id), reason)
        return await self.operate_async("cancel", f"job {job_id}", verb)

    def retry(self, job_id: UUID | str) -> JobState:
        """Queue a failed job again with all its attempts; a succeeded job is refused."""
        return self.operate("retry", f"job {job_id}", protocol.retry(_uuid(job_id)))

    async def retry_async(self, job_id: UUID | str) -> JobState:
        verb = protocol.retry(_uuid(job_id))
        return await self.operate_async("retry", f"job {job_id}", verb)

    def delete(self, job_id: UUID | str) -> JobState:
        """Delete a queued or failed job and free its idempotency key.

        Running and succeeded jobs are refused. Returns the state that the job was in.
        """
        return self.operate("delete", f"job {job_id}", protocol.delete(_uuid(job_id)))

    async def delete_async(self, job_id: UUID | str) -> JobState:
        verb = protocol.delete(_uuid(job_id))
        return await self.operate_async("delete", f"job {job_id}", verb)

    def edit(
        self, job_id: UUID | str, payload: Mapping[str, Any], *, force: bool = False
    ) -> JobState:
        """Replace the payload of a queued or failed job; its timeline keeps the old one.

        The payload is JSON. It is checked if this application has the job's task, unless `force`.
        """
        if not force:
            self._check_payload(self.execute(jobs.get_job(_uuid(job_id))), payload)
        verb = protocol.edit_payload(_uuid(job_id), payload)
        return self.operate("edit", f"job {job_id}", verb)

    async def edit_async(
        self, job_id: UUID | str, payload: Mapping[str, Any], *, force: bool = False
    ) -> JobState:
        if not force:
            self._check_payload(await self.execute_async(jobs.get_job(_uuid(job_id))), payload)
        verb = protocol.edit_payload(_uuid(job_id), payload)
        return await self.operate_async("edit", f"job {job_id}", verb)

    def _check_payload(self, job: JobRecord | None, payload: Mapping[str, Any]) -> None:
        task = None if job is None else self.tasks.get(job.task)
        if task is not None:
            task.check_arguments(encode_payload(payload))

    def jobs(self, **wanted: Unpack[FilterArguments]) -> JobSelection:
        """Select jobs by filter, to read them or to act on all of them.

        Nothing is read before a method of the selection is called.
        """
        return JobSelection(self, job_filter(**wanted))

    def operate(self, action: str, target: str, statement: Statement[T]) -> T:
        """Run an operator's action; a refusal is recorded in the audit log."""
        try:
            return self.execute(statement)
        except FaultlineError as error:
            if audit.is_refusal(error):
                with contextlib.suppress(FaultlineError):  # the account may lack this right too
                    self.execute(_refused(action, target, error))
            raise

    async def operate_async(self, action: str, target: str, statement: Statement[T]) -> T:
        try:
            return await self.execute_async(statement)
        except FaultlineError as error:
            if audit.is_refusal(error):
                with contextlib.suppress(FaultlineError):
                    await self.execute_async(_refused(action, target, error))
            raise

    def queues(self) -> list[QueueCount]:
        """Count the jobs of each queue by state; the cost does not grow with the table."""
        return self.execute(queues.queues())

    async def queues_async(self) -> list[QueueCount]:
        return await self.execute_async(queues.queues())

    def pause_queue(self, queue: str, reason: str | None = None) -> bool:
        """Stop workers from claiming its jobs; False if it was paused already."""
        return self.operate("pause", f"queue {queue}", queues.pause(queue, reason))

    async def pause_queue_async(self, queue: str, reason: str | None = None) -> bool:
        verb = queues.pause(queue, reason)
        return await self.operate_async("pause", f"queue {queue}", verb)

    def resume_queue(self, queue: str) -> bool:
        """Let workers claim its jobs again. False if the queue was not paused."""
        return self.operate("resume", f"queue {queue}", queues.resume(queue))

    async def resume_queue_async(self, queue: str) -> bool:
        verb = queues.resume(queue)
        return await self.operate_async("resume", f"queue {queue}", verb)

    # ── running statements ───────────────────────────────────────────────────────────────────────

    def execute(self, statement: Statement[T], conn: AnyConnection | None = None) -> T:
        """Run a statement; only on `conn` it raises errors of the driver."""
        if conn is None:
            return self.producer.execute(statement)
        return sync_connection(conn).run(statement)

    async def execute_async(self, statement: Statement[T], conn: AnyConnection | None = None) -> T:
        if conn is None:
            return await self.producer.execute_async(statement)
        return await async_connection(conn).run(statement)

    def close(self) -> None:
        """Close the connections that `enqueue` and the other plain methods opened."""
        self._waiters.close()
        self.producer.close()

    async def aclose(self) -> None:
        """Close the connections of this event loop, and those that `close` closes."""
        await self.producer.aclose()
        self.close()


def _uuid(job_id: UUID | str) -> UUID:
    try:
        return job_id if isinstance(job_id, UUID) else UUID(job_id)
    except (ValueError, TypeError, AttributeError):
        raise InvalidInput(
            f"{str(job_id)[:80]!r} is not a job id",
            hint="give the UUID that enqueue returned; faultline jobs list shows them",
        ) from None


def _refused(action: str, target: str, error: FaultlineError) -> Statement[bool]:
    return audit.record_refusal(None, action=action, target=target, code=error.code)


def _found(job_id: UUID | str, record: JobRecord | None) -> JobRecord:
    if record is None:
        raise UnknownJob(f"there is no job {job_id}")
    return record
