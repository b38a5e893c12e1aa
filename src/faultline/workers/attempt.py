"""One attempt at one job: runs the handler, and ends it from outside when needed."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from faultline.attempt_transactions import AttemptTransactions
from faultline.errors import HandlerExit
from faultline.handler_errors import make_safe
from faultline.handler_interrupts import AttemptAborted, Interrupts
from faultline.job import Job
from faultline.model import Claim, CommitPhase
from faultline.steady import steady_now
from faultline.task import Task
from faultline.workers import stacks
from faultline.workers.children import ChildCall
from faultline.workers.handler_resources import HandlerResources
from faultline.workers.leases import Lease
from faultline.workers.stacks import Stack

_GRACE_SECONDS = 1.0
_CANCEL_DELAY_SECONDS = 0.02
# How long an attempt may wait for a thread or a process before its timeout starts anyway.
_START_SECONDS = 300.0


class AbortCause(StrEnum):
    LEASE_LOST = "lease_lost"
    TIMEOUT = "timeout"
    DRAIN = "drain"


class Returned(NamedTuple):
    value: Any


class Raised(NamedTuple):
    error: Exception


class Aborted(NamedTuple):
    cause: AbortCause


Ending = Returned | Raised | Aborted


class Interruptible(Protocol):
    """A handler's call in a thread, which another thread can end."""

    on_begin: Callable[[], object]  # called in that thread when the handler begins
    thread_id: int | None  # while it runs

    def __call__(self) -> Any: ...
    def interrupt(self) -> None: ...


class Attempt:
    """Runs one handler in an asyncio task of its own.

    A handler that does not end when it is aborted is abandoned: `on_abandoned` is called once and writes the
    outcome. `run` still returns only when the handler ends.
    """

    __slots__ = (
        "_abort_cause",
        "_call",
        "_commit_grace_timer",
        "_loop",
        "_on_abandoned",
        "_task",
        "_timeout_at",
        "_timer",
        "arguments",
        "is_abandoned",
        "job",
        "lease",
        "task",
        "timeout_seconds",
        "transactions",
    )

    def __init__(
        self,
        task: Task[Any, Any],
        job: Job,
        lease: Lease,
        transactions: AttemptTransactions,
        *,
        arguments: dict[str, Any],
        loop: asyncio.AbstractEventLoop,
        on_abandoned: Callable[[Attempt, AbortCause], None],
    ) -> None:
        self.task = task
        self.job = job
        self.lease = lease
        self.transactions = transactions
        self.arguments = arguments
        self.timeout_seconds = task.settings.timeout_seconds
        if lease.claim.overrides_json is not None:
            self.timeout_seconds = lease.claim.override("timeout") or self.timeout_seconds
        self.is_abandoned = False
        self._loop = loop
        self._on_abandoned = on_abandoned
        self._abort_cause: AbortCause | None = None
        self._commit_grace_timer: asyncio.TimerHandle | None = None
        # the handler's timeout, or the grace after an abort
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Any] | None = None  # while the handler runs in it
        self._call: Interruptible | None = None
        self._timeout_at: float | None = None  # while the handler runs

    @property
    def claim(self) -> Claim:
        return self.lease.claim

    @property
    def leases(self) -> tuple[Lease, ...]:
        return (self.lease,)

    @property
    def is_running(self) -> bool:
        """True until the handler ends. Its outcome may still be written afterwards."""
        return self._task is not None

    @property
    def is_in_thread(self) -> bool:
        """Whether the handler runs in a thread, or in a process that a thread waits for."""
        return self._call is not None

    @property
    def handler_task(self) -> asyncio.Task[Any] | None:
        return self._task

    def is_overdue(self, now: float) -> bool:
        """True if the timeout has passed and was not acted on."""
        due_at = self._timeout_at
        return due_at is not None and now > due_at and self._abort_cause is None

    def stack(self) -> Stack | None:
        """The stack of the handler, if it runs now."""
        call = self._call
        if call is not None:
            return stacks.of_thread(call.thread_id)
        return stacks.of_task(self._task)

    # ── from outside ─────────────────────────────────────────────────────────────────────────────

    def abort(self, cause: AbortCause) -> None:
        """End the handler. May be called from any thread, and more than once.

        An attempt that has sent its commit is not ended when its lease is lost: its transaction has locked
        the job's row, and PostgreSQL decides how the commit ends. For any other cause the commit gets some
        time first. Then the attempt is ended, because a handler that rolled back must not run for ever.
        """
        if self._abort_cause is not None:
            return
        if (
            self.transactions.phase is not CommitPhase.UNCOMMITTED
            and cause is AbortCause.LEASE_LOST
        ):
            return
        if self.transactions.phase is CommitPhase.FENCED and self._commit_grace_timer is None:
            self._loop.call_soon_threadsafe(self._wait_for_commit, cause)
            return
        self._abort_cause = cause
        self.transactions.sever_all()
        if self._call is not None:
            self._call.interrupt()
        self._loop.call_soon_threadsafe(self._abort_on_loop, cause)

    def _wait_for_commit(self, cause: AbortCause) -> None:
        if self._commit_grace_timer is None:
            self._commit_grace_timer = self._loop.call_later(_GRACE_SECONDS / 2, self.abort, cause)

    def _abort_on_loop(self, cause: AbortCause) -> None:
        if self._task is None:
            return  # the handler has ended, or has not begun: `run` checks the cause
        if self._call is None:
            # The handler may be waiting on a connection that was just severed. It gets a moment to fail by
            # itself. If it is cancelled while it waits, the driver sends a cancel request to the server, and
            # an unreachable server never answers.
            delay = _CANCEL_DELAY_SECONDS if self.transactions.has_connections else 0
            self._loop.call_later(delay, self._cancel)
        self._set_timer(_GRACE_SECONDS, self._abandon, cause)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _abandon(self, cause: AbortCause) -> None:
        self.is_abandoned = True
        self._on_abandoned(self, cause)

    def _set_timer(self, seconds: float, callback: Callable[..., None], *args: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, callback, *args)

    # ── the handler ──────────────────────────────────────────────────────────────────────────────

    async def run(self, resources: HandlerResources) -> Ending:
        """Run the handler. Returns how it ended, and never raises its exception."""
        if self._commit_grace_timer is not None:  # set in the previous run of this attempt
            self._commit_grace_timer.cancel()
            self._commit_grace_timer = None
        if self._abort_cause is not None:
            return Aborted(self._abort_cause)  # between two runs of the same attempt
        task = self.task
        in_child = self._runs_in_child()
        current = self._task = asyncio.current_task(self._loop)
        try:
            if task.is_async and not in_child:
                if self.timeout_seconds is not None:
                    self._timeout_at = steady_now() + self.timeout_seconds
                    self._set_timer(self.timeout_seconds, self.abort, AbortCause.TIMEOUT)
                value = await task.coroutine(self._subject, **self.arguments)
            else:
                value = await self._run_in_thread(
                    self._make_call(resources, in_child), resources.threads
                )
        except asyncio.CancelledError:
            if resources.is_closing:
                raise  # the worker itself is shutting down
            return self._ended_by(HandlerExit("the handler cancelled itself"))
        except BaseException as error:  # SystemExit and the like would end the whole process
            return self._ended_by(make_safe(error))
        finally:
            self._task = self._call = self._timeout_at = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            while current is not None and current.cancelling() and not resources.is_closing:
                current.uncancel()  # the cancellation was for the handler, which has ended
                self.lease.was_cancelled = True
        return Returned(value)

    @property
    def _subject(self) -> Any:
        """What the handler gets as its first argument."""
        return self.job

    def _runs_in_child(self) -> bool:
        task = self.task
        return task.settings.process or (self.lease.claim.is_suspect and task.is_importable)

    def _ended_by(self, error: Exception) -> Ending:
        return Raised(error) if self._abort_cause is None else Aborted(self._abort_cause)

    def _make_call(self, resources: HandlerResources, in_child: bool) -> Interruptible:
        if in_child:
            return ChildCall(
                resources.children,
                self.task,
                self.transactions,
                self.lease,
                on_progress=self.job.progress,
            )
        return InterruptibleCall(self.task.attempt, self._subject, **self.arguments)

    async def _run_in_thread(self, call: Interruptible, threads: Executor) -> Any:
        self._call = call
        limit = self.timeout_seconds
        if limit is not None:
            # The timeout starts with the handler, not while it waits for a thread or a process.
            self._set_timer(_START_SECONDS + limit, self.abort, AbortCause.TIMEOUT)
            call.on_begin = lambda: self._begin(limit)
        # A copy for each attempt: the handler sees its job and its span, and context variables that it
        # sets do not reach the next job of the thread.
        context = contextvars.copy_context()
        for lease in self.leases:
            lease.context = context
        thread = self._loop.run_in_executor(threads, context.run, self._call_without_loop, call)
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            if not thread.done():
                thread.add_done_callback(_retrieve_exception)  # its result is not needed any more
            raise

    def _call_without_loop(self, call: Interruptible) -> Any:
        """Run in the thread: the handler needs no event loop, but its outcome does."""
        self._need_loop(False)
        try:
            return call()
        finally:
            self._need_loop(True)

    def _need_loop(self, needs_loop: bool) -> None:
        for lease in self.leases:
            lease.needs_loop = needs_loop

    def _begin(self, limit: float) -> None:
        """Start the timeout; called in the thread."""
        self._timeout_at = steady_now() + limit
        self._loop.call_soon_threadsafe(self._begin_time, limit)

    def _begin_time(self, limit: float) -> None:
        if self._task is not None and self._abort_cause is None:
            self._set_timer(limit, self.abort, AbortCause.TIMEOUT)


def _retrieve_exception(thread: asyncio.Future[Any]) -> None:
    if not thread.cancelled():
        thread.exception()


class InterruptibleCall:
    """A handler's call in a thread that another thread can interrupt.

    A thread inside a C call cannot be interrupted. Correctness does not depend on it, but on the fence.
    """

    def __init__(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        self._function, self._args, self._kwargs = function, args, kwargs
        self._interrupts = Interrupts()
        self.on_begin: Callable[[], object] = lambda: None
        self.thread_id: int | None = None

    def __call__(self) -> Any:
        self.thread_id = threading.get_ident()
        try:
            self._interrupts.begin()
            self.on_begin()
            return self._function(*self._args, **self._kwargs)
        except (AttemptAborted, asyncio.CancelledError):
            raise
        except BaseException as error:
            if issubclass(type(error), StopIteration):  # a future cannot carry StopIteration
                raise HandlerExit("the handler raised StopIteration") from error
            # The event loop would raise SystemExit and the like again, and end the process. The same holds
            # for errors that the methods of a broken exception class raise.
            safe_error = make_safe(error)
            if safe_error is error:
                raise
            raise safe_error from None
        finally:
            self._interrupts.end()

    def interrupt(self) -> None:
        self._interrupts.send()
