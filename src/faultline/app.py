"""The application: a registry of tasks, and connections to enqueue jobs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from faultline import handler_interrupts
from faultline.embedded import ensure_running
from faultline.errors import (
    DatabaseUnavailable,
    FaultlineError,
    InvalidInput,
    UnknownJob,
    UnknownTask,
)
from faultline.fenced_block import PrepareTransaction
from faultline.hooks import H, Hooks
from faultline.model import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_PRIORITY,
    DEFAULT_QUEUE,
    JobRecord,
    JobState,
)
from faultline.postgres import driver
from faultline.postgres.answer_limit import LONGEST_ANSWER_SECONDS, answered_within, was_unanswered
from faultline.postgres.driver import DriverError
from faultline.postgres.errors import driver_errors, is_read_only_refusal, pool_errors
from faultline.postgres.migrate import migrate
from faultline.postgres.sessions import (
    AsyncConnection,
    AsyncPool,
    Connection,
    Pool,
    connect,
    is_standby,
    is_standby_async,
    make_async_pool,
    make_pool,
    open_session_async,
    run,
    run_async,
)
from faultline.postgres.url import url_from_environment
from faultline.retry_policy import DEFAULT_RETRY, RetryPolicy
from faultline.statements import audit, jobs, protocol, queues
from faultline.statements.queues import QueueCount
from faultline.statements.session_settings import CONTROL
from faultline.statements.statement import Statement
from faultline.task import Handler, Task, TaskOptions

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

PRODUCER_CONNECTIONS = 10
ENQUEUE_TIMEOUT_SECONDS = 15.0
_SHORTEST_SECONDS = 0.1
# Pools that a forked child inherited. They are never closed: closing waits for threads that exist only
# in the parent.
_inherited: list[Pool] = []


class Faultline:
    """Defines tasks, enqueues their jobs and operates on jobs and queues.

    Without a URL it uses DATABASE_URL or the file that DATABASE_URL_FILE names, and otherwise an
    embedded PostgreSQL for development, which it starts and migrates on first use.

    `enqueue_timeout_seconds` limits `enqueue` and the other plain methods, which then raise
    DatabaseUnavailable. A call without an answer may have taken effect: repeat it with the same
    idempotency key. Calls on a connection of yours (`conn=`) have no limit.

    `prepare_transaction(job, conn)` is called at the start of each block of `job.transaction()` and
    `job.fenced()` on a worker's connection, for example to set a role or a search_path. In `async def`
    handlers it may be async, and gets an async connection.
    """

    def __init__(
        self,
        database_url: str | None = None,
        *,
        enqueue_timeout_seconds: float = ENQUEUE_TIMEOUT_SECONDS,
        prepare_transaction: PrepareTransaction | None = None,
    ) -> None:
        if not 0 < enqueue_timeout_seconds <= LONGEST_ANSWER_SECONDS:
            raise InvalidInput(
                f"enqueue_timeout_seconds must be more than 0 and at most {LONGEST_ANSWER_SECONDS:g},"
                f" not {enqueue_timeout_seconds:g}"
            )
        self.prepare_transaction = prepare_transaction
        self._given_url = database_url
        self._timeout_seconds = enqueue_timeout_seconds
        self._embedded_url: str | None = None
        self._tasks: dict[str, Task[Any, Any]] = {}
        self._hooks = Hooks()
        self._pool: Pool | None = None
        self._pool_owner = 0  # the process that opened it: a forked child needs its own
        self._opening = threading.Lock()
        self._async_opening: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            weakref.WeakKeyDictionary()
        )
        self._async_pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncPool] = (
            weakref.WeakKeyDictionary()
        )

    @property
    def database_url(self) -> str:
        if url := self._given_url or url_from_environment():
            return url
        if self._embedded_url is None:
            url = ensure_running()
            migrate(url)
            self._embedded_url = url
        return self._embedded_url

    # ── hooks ────────────────────────────────────────────────────────────────────────────────────

    def before_attempt(self, hook: H) -> H:
        """Call a function with the job before each attempt: `@app.before_attempt`.

        It runs in the handler's thread for `def`, on the event loop for `async def`, and in the child
        process for `process=True`. An error in it fails the attempt. An `async def` hook is called for
        async handlers only.
        """
        return self._hooks.add(self._hooks.before, hook)

    def after_attempt(self, hook: H) -> H:
        """The same after each attempt, whatever its outcome; an error is logged only."""
        return self._hooks.add(self._hooks.after, hook)

    # ── tasks ────────────────────────────────────────────────────────────────────────────────────

    def task(
        self,
        *,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = DEFAULT_PRIORITY,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        retry: RetryPolicy = DEFAULT_RETRY,
        lease_seconds: float | None = None,
        timeout_seconds: float | None = None,
        process: bool = False,
    ) -> Callable[[Handler[P, R]], Task[P, R]]:
        """Make a function the handler of a task: `@app.task(queue="billing")`."""
        options = TaskOptions(
            queue=queue,
            priority=priority,
            max_attempts=max_attempts,
            retry=retry,
            lease_seconds=lease_seconds,
            timeout_seconds=timeout_seconds,
            process=process,
        )

        def register(handler: Handler[P, R]) -> Task[P, R]:
            task = Task(self, handler, name or _default_name(handler), options, self._hooks)
            if task.name in self._tasks:
                raise InvalidInput(f"two tasks are named {task.name}", hint="give one a name=")
            self._tasks[task.name] = task
            return task

        return register

    @property
    def tasks(self) -> Mapping[str, Task[Any, Any]]:
        return MappingProxyType(self._tasks)

    def find_task(self, name: str) -> Task[Any, Any]:
        try:
            return self._tasks[name]
        except KeyError:
            raise UnknownTask(
                f"no task is named {name!r}",
                hint=f"this app has {', '.join(self._tasks) or 'none'}",
            ) from None

    # ── jobs ─────────────────────────────────────────────────────────────────────────────────────

    def get(self, job_id: UUID | str) -> JobRecord:
        return _found(job_id, self.execute(jobs.get_job(_uuid(job_id))))

    async def get_async(self, job_id: UUID | str) -> JobRecord:
        return _found(job_id, await self.execute_async(jobs.get_job(_uuid(job_id))))

    def cancel(self, job_id: UUID | str, reason: str | None = None) -> JobState:
        """Cancel a job, so that it does not run (again); waits for a commit in progress."""
        return self._operate("cancel", f"job {job_id}", protocol.cancel(_uuid(job_id), reason))

    async def cancel_async(self, job_id: UUID | str, reason: str | None = None) -> JobState:
        verb = protocol.cancel(_uuid(job_id), reason)
        return await self._operate_async("cancel", f"job {job_id}", verb)

    def retry(self, job_id: UUID | str) -> JobState:
        """Queue a failed job again with all its attempts; a succeeded job is refused."""
        return self._operate("retry", f"job {job_id}", protocol.retry(_uuid(job_id)))

    async def retry_async(self, job_id: UUID | str) -> JobState:
        verb = protocol.retry(_uuid(job_id))
        return await self._operate_async("retry", f"job {job_id}", verb)

    def _operate(self, action: str, target: str, statement: Statement[T]) -> T:
        """Run an operator's action; a refusal is recorded in the audit log."""
        try:
            return self.execute(statement)
        except FaultlineError as error:
            if audit.is_refusal(error):
                with contextlib.suppress(FaultlineError):  # the account may lack this right too
                    self.execute(_refused(action, target, error))
            raise

    async def _operate_async(self, action: str, target: str, statement: Statement[T]) -> T:
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
        return self._operate("pause", f"queue {queue}", queues.pause(queue, reason))

    async def pause_queue_async(self, queue: str, reason: str | None = None) -> bool:
        verb = queues.pause(queue, reason)
        return await self._operate_async("pause", f"queue {queue}", verb)

    def resume_queue(self, queue: str) -> bool:
        """Let workers claim its jobs again. False if the queue was not paused."""
        return self._operate("resume", f"queue {queue}", queues.resume(queue))

    async def resume_queue_async(self, queue: str) -> bool:
        verb = queues.resume(queue)
        return await self._operate_async("resume", f"queue {queue}", verb)

    # ── running statements ───────────────────────────────────────────────────────────────────────

    def execute(self, statement: Statement[T], conn: Connection | None = None) -> T:
        """Run a statement; only on `conn` it raises errors of the driver."""
        if conn is not None:
            if not isinstance(conn, driver.Connection):
                raise InvalidInput(f"conn is a {type(conn).__name__}: use the _async method")
            return run(conn, statement)
        deadline = time.monotonic() + self._timeout_seconds
        url = self.database_url
        with driver_errors(), handler_interrupts.held() as hold:
            pool = self._open_pool(url, deadline)
            with pool_errors(url):
                pooled = pool.getconn(_left(deadline))
            try:
                with answered_within(pooled, _left(deadline)), hold.released():
                    return run(pooled, statement)
            except DriverError as error:
                is_demoted = is_read_only_refusal(error) and is_standby(pooled)
                if is_demoted or was_unanswered(error):
                    pooled.close()
                    pool.distrust()
                if is_demoted:
                    raise _demoted() from error
                raise
            finally:
                pool.putconn(pooled)

    def _open_pool(self, url: str, deadline: float) -> Pool:
        if not self._opening.acquire(timeout=_left(deadline)):
            raise _too_late(self._timeout_seconds)
        try:
            if self._pool is not None and self._pool_owner != os.getpid():
                _inherited.append(self._pool)
                self._pool = None
            if self._pool is None:
                # Connect once first: a pool would report a failure late and without its cause.
                connect(url, needs_primary=True, connect_seconds=_left(deadline)).close()
                self._pool = make_pool(
                    url,
                    max_size=PRODUCER_CONNECTIONS,
                    application_name="faultline producer",
                    settings=CONTROL,
                )
                self._pool.open()
                self._pool_owner = os.getpid()
            return self._pool
        finally:
            self._opening.release()

    async def execute_async(
        self, statement: Statement[T], conn: AsyncConnection | None = None
    ) -> T:
        if conn is not None:
            if not isinstance(conn, driver.AsyncConnection):
                raise InvalidInput(f"conn is a {type(conn).__name__}: it must be async here")
            return await run_async(conn, statement)
        deadline = time.monotonic() + self._timeout_seconds
        url = self.database_url
        pool = await self._open_async_pool(url, deadline)
        with driver_errors():
            with pool_errors(url):
                pooled = await pool.getconn(_left(deadline))
            try:
                with answered_within(pooled, _left(deadline)):
                    return await run_async(pooled, statement)
            except DriverError as error:
                is_demoted = is_read_only_refusal(error) and await is_standby_async(pooled)
                if is_demoted or was_unanswered(error):
                    await pooled.close()
                    await pool.distrust()
                if is_demoted:
                    raise _demoted() from error
                raise
            finally:
                await pool.putconn(pooled)

    async def _open_async_pool(self, url: str, deadline: float) -> AsyncPool:
        loop = asyncio.get_running_loop()
        try:
            async with (
                asyncio.timeout(_left(deadline)),
                self._async_opening.setdefault(loop, asyncio.Lock()),
            ):
                if loop not in self._async_pools:
                    session = await open_session_async(
                        url, application_name="faultline", needs_primary=True
                    )
                    await session[0].close()
                    pool = make_async_pool(
                        url,
                        max_size=PRODUCER_CONNECTIONS,
                        application_name="faultline producer",
                        settings=CONTROL,
                    )
                    await pool.open()
                    self._async_pools[loop] = pool
                return self._async_pools[loop]
        except TimeoutError as error:
            raise _too_late(self._timeout_seconds) from error

    def close(self) -> None:
        """Close the connections that `enqueue` and the other plain methods opened."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    async def aclose(self) -> None:
        """Close the connections of this event loop, and those that `close` closes."""
        if pool := self._async_pools.pop(asyncio.get_running_loop(), None):
            await pool.close()
        self.close()


def _default_name(handler: Callable[..., Any]) -> str:
    name = f"{handler.__module__}.{handler.__qualname__}"
    return name.replace("<locals>.", "")


def _uuid(job_id: UUID | str) -> UUID:
    try:
        return job_id if isinstance(job_id, UUID) else UUID(job_id)
    except (ValueError, TypeError, AttributeError):
        raise InvalidInput(f"{str(job_id)[:80]!r} is not a job id") from None


def _refused(action: str, target: str, error: FaultlineError) -> Statement[bool]:
    return audit.record_refusal(None, action=action, target=target, code=error.code)


def _found(job_id: UUID | str, record: JobRecord | None) -> JobRecord:
    if record is None:
        raise UnknownJob(f"there is no job {job_id}")
    return record


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), _SHORTEST_SECONDS)


def _demoted() -> DatabaseUnavailable:
    return DatabaseUnavailable(
        "the server was demoted to a standby, which is read-only; nothing was done",
        hint="try again: the next call connects to the primary",
    )


def _too_late(seconds: float) -> DatabaseUnavailable:
    return DatabaseUnavailable(
        f"no connection to PostgreSQL within {seconds:g} s; nothing was sent",
        hint="check that the server is running: faultline doctor",
    )
