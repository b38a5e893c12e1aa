"""One attempt at one job: the handler under way, and the ways to end it from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from faultline.errors import HandlerExit
from faultline.job import CommitPhase, Job
from faultline.model import Claim
from faultline.task import Task
from faultline.workers.children import ChildCall
from faultline.workers.leases import Lease
from faultline.workers.threads import AttemptAborted, InterruptibleCall
from faultline.workers.tools import Tools

_GRACE_SECONDS = 1.0
_START_SECONDS = (
    300.0  # for a thread or a process to be free and up; then the handler's time runs anyway
)


class AbortCause(StrEnum):
    LEASE_LOST = "lease_lost"
    TIMEOUT = "timeout"
    DRAIN = "drain"


@dataclass(frozen=True, slots=True)
class Returned:
    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    error: Exception


@dataclass(frozen=True, slots=True)
class Aborted:
    cause: AbortCause


Ending = Returned | Raised | Aborted


class Interruptible(Protocol):
    """A handler's call, made from a thread, that another thread can end."""

    on_begin: Callable[[], object]  # called in that thread when the handler's time begins

    def __call__(self) -> Any: ...
    def interrupt(self) -> None: ...


class Attempt:
    def __init__(self, claim: Claim, task: Task[Any, Any], job: Job, lease: Lease) -> None:
        self.claim = claim
        self.task = task
        self.job = job
        self.lease = lease
        self._loop = asyncio.get_running_loop()
        self._aborting = asyncio.Event()
        self._ended = asyncio.Event()  # the handler is over, or has had its grace
        self._abort_cause: AbortCause | None = None
        self._commits_moment: asyncio.TimerHandle | None = None
        self._handler_task: asyncio.Task[Any] | None = None
        self._call: Interruptible | None = None
        self._thread: asyncio.Future[Any] | None = None

    def abort(self, cause: AbortCause) -> None:
        """End the handler; may be called from any thread, and more than once.

        An attempt that has sent its commit has nothing to lose with its lease: its row is locked, and
        the database will say how it ended. But it may not run for ever, and what it sent may have been
        rolled back: when its time is up, the commit gets a moment, and then it is ended too.
        """
        if self._abort_cause is not None:
            return
        if self.job._phase is not CommitPhase.UNCOMMITTED and cause is AbortCause.LEASE_LOST:
            return
        if self.job._phase is CommitPhase.FENCED and self._commits_moment is None:
            self._loop.call_soon_threadsafe(self._wait_for_commit, cause)
            return
        self._abort_cause = cause
        self.job._cut_connections()
        if self._call is not None:
            self._call.interrupt()
        self._loop.call_soon_threadsafe(self._abort_on_loop)

    def _wait_for_commit(self, cause: AbortCause) -> None:
        if self._commits_moment is None:
            self._commits_moment = self._loop.call_later(_GRACE_SECONDS / 2, self.abort, cause)

    def _abort_on_loop(self) -> None:
        self._aborting.set()
        if self._handler_task is not None:
            self._handler_task.cancel()
            self._loop.call_later(_GRACE_SECONDS, self._ended.set)

    def _over(self, handler_task: asyncio.Task[Any]) -> None:
        self._ended.set()

    async def run(self, tools: Tools) -> Ending:
        """Run the handler to one of its three ends; never raises what the handler raised."""
        self._ended.clear()
        if self._commits_moment is not None:  # it was for the try before this one
            self._commits_moment.cancel()
            self._commits_moment = None
        if (aborted := self._aborted()) is not None:
            return aborted  # between two tries of the same attempt
        arguments = self.task.bind(self.job, self.claim.payload_json)
        in_child = self.task.options.process or (self.claim.is_suspect and self.task.is_importable)
        try:
            if self.task.is_async and not in_child:
                value = await self._run_on_loop(
                    self.task.handler(*arguments.args, **arguments.kwargs)
                )
            else:
                call: Interruptible
                if in_child:
                    call = ChildCall(tools.children, self.task, self.job, self.lease)
                else:
                    call = InterruptibleCall(self.task.handler, *arguments.args, **arguments.kwargs)
                value = await self._run_in_thread(call, tools.threads)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise  # the worker itself is being torn down
            return self._aborted() or Raised(HandlerExit("the handler cancelled itself"))
        except (Exception, AttemptAborted) as error:
            return self._aborted() or Raised(_as_exception(error))
        return Returned(value)

    def _aborted(self) -> Aborted | None:
        return None if self._abort_cause is None else Aborted(self._abort_cause)

    async def _run_on_loop(self, handler: Coroutine[Any, Any, Any]) -> Any:
        self._handler_task = asyncio.create_task(_contained(handler))
        self._handler_task.add_done_callback(self._over)
        limit = self.task.options.timeout_seconds
        timer = (
            None if limit is None else self._loop.call_later(limit, self.abort, AbortCause.TIMEOUT)
        )
        try:
            await self._ended.wait()
            if not self._handler_task.done():
                raise AttemptAborted  # it will not be cancelled; the attempt is over all the same
            return self._handler_task.result()
        except asyncio.CancelledError:
            self._handler_task.cancel()  # when the worker itself is being torn down
            raise
        finally:
            if timer is not None:
                timer.cancel()

    async def _run_in_thread(self, call: Interruptible, threads: Executor) -> Any:
        self._call = call
        begun = asyncio.Event()
        call.on_begin = lambda: self._loop.call_soon_threadsafe(begun.set)
        self._thread = asyncio.ensure_future(self._loop.run_in_executor(threads, call))
        aborting = asyncio.ensure_future(self._aborting.wait())
        beginning = asyncio.ensure_future(begun.wait())
        first = asyncio.FIRST_COMPLETED
        try:
            # Waiting for a thread, or for a process to come up, is not the handler's time.
            await asyncio.wait(
                {self._thread, aborting, beginning}, timeout=_START_SECONDS, return_when=first
            )
            await asyncio.wait(
                {self._thread, aborting},
                timeout=self.task.options.timeout_seconds,
                return_when=first,
            )
            if not self._thread.done() and not aborting.done():
                self.abort(AbortCause.TIMEOUT)
            if not self._thread.done():
                await asyncio.wait({self._thread}, timeout=_GRACE_SECONDS)
            if not self._thread.done():
                raise AttemptAborted
            return self._thread.result()
        finally:
            aborting.cancel()
            beginning.cancel()

    @property
    def outlives_its_end(self) -> bool:
        """A handler that could not be interrupted, or would not be cancelled."""
        handler = self._thread or self._handler_task
        return handler is not None and not handler.done()

    async def handler_ended(self) -> None:
        """Wait for one that outlives its attempt: until then it keeps its slot."""
        handler = self._thread or self._handler_task
        if handler is not None:
            await asyncio.wait({handler})
            if not handler.cancelled():
                handler.exception()  # seen; it came too late to matter


async def _contained(handler: Coroutine[Any, Any, Any]) -> Any:
    """An event loop lets SystemExit and its kind end the whole process: here they end one attempt."""
    try:
        return await handler
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as error:
        raise _as_exception(error) from error


def _as_exception(error: BaseException) -> Exception:
    if isinstance(error, Exception):
        return error
    return HandlerExit.of(error)
