"""One attempt at one job: the handler under way, and the ways to end it from outside."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from faultline.errors import AttemptTimeout
from faultline.job import CommitPhase, Job
from faultline.model import Claim
from faultline.task import Task
from faultline.workers.leases import Lease
from faultline.workers.threads import AttemptAborted, InterruptibleCall

_THREAD_GRACE_SECONDS = 1.0


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


class Attempt:
    def __init__(self, claim: Claim, task: Task[Any, Any], job: Job, lease: Lease) -> None:
        self.claim = claim
        self.task = task
        self.job = job
        self.lease = lease
        self._loop = asyncio.get_running_loop()
        self._aborting = asyncio.Event()
        self._abort_cause: AbortCause | None = None
        self._handler_task: asyncio.Task[Any] | None = None
        self._call: InterruptibleCall | None = None
        self._thread: asyncio.Future[Any] | None = None

    def abort(self, cause: AbortCause) -> None:
        """End the handler; may be called from any thread, and more than once.

        An attempt that has sent its commit is left alone: its row is locked, and the database will
        say how it ended.
        """
        if self._abort_cause is not None or self.job._phase is not CommitPhase.UNCOMMITTED:
            return
        self._abort_cause = cause
        if cause is AbortCause.LEASE_LOST:
            self.job._cut_connections()
        if self._call is not None:
            self._call.interrupt()
        self._loop.call_soon_threadsafe(self._abort_on_loop)

    def _abort_on_loop(self) -> None:
        self._aborting.set()
        if self._handler_task is not None:
            self._handler_task.cancel()

    async def run(self, threads: Executor) -> Ending:
        """Run the handler to one of its three ends; never raises what the handler raised."""
        arguments = self.task.bind(self.job, self.claim.payload)
        try:
            if self.task.is_async:
                handler = self.task.handler(*arguments.args, **arguments.kwargs)
                value = await self._run_on_loop(handler)
            else:
                call = InterruptibleCall(self.task.handler, *arguments.args, **arguments.kwargs)
                value = await self._run_in_thread(call, threads)
        except AttemptTimeout:
            return Aborted(AbortCause.TIMEOUT)
        except (asyncio.CancelledError, AttemptAborted):
            if self._abort_cause is None:
                raise  # the worker itself is being torn down
            return Aborted(self._abort_cause)
        except Exception as error:
            return Raised(error)
        return Returned(value)

    async def _run_on_loop(self, handler: Any) -> Any:
        self._handler_task = asyncio.ensure_future(handler)
        try:
            async with asyncio.timeout(self.task.options.timeout_seconds) as limit:
                return await self._handler_task
        except TimeoutError:
            if limit.expired():
                raise AttemptTimeout(self._timeout_message()) from None
            raise
        finally:
            self._handler_task.cancel()

    async def _run_in_thread(self, call: InterruptibleCall, threads: Executor) -> Any:
        self._call = call
        self._thread = asyncio.ensure_future(self._loop.run_in_executor(threads, call))
        aborting = asyncio.ensure_future(self._aborting.wait())
        try:
            await asyncio.wait(
                {self._thread, aborting},
                timeout=self.task.options.timeout_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not self._thread.done() and not aborting.done():
                self.abort(AbortCause.TIMEOUT)
            if not self._thread.done():
                await asyncio.wait({self._thread}, timeout=_THREAD_GRACE_SECONDS)
            if not self._thread.done():
                raise AttemptAborted
            return self._thread.result()
        finally:
            aborting.cancel()

    async def thread_ended(self) -> None:
        """Wait for a thread that could not be interrupted: until then it keeps its slot."""
        if self._thread is not None and not self._thread.done():
            await asyncio.wait({self._thread})
        if self._thread is not None and not self._thread.cancelled():
            self._thread.exception()  # seen; it came too late to matter

    def _timeout_message(self) -> str:
        return f"{self.task.name} ran longer than {self.task.options.timeout_seconds:g} s"
