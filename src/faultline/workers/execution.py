"""From a claim to its end: run the handler, look at how it ended, and have that settled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeGuard, assert_never

from faultline.app import Faultline
from faultline.errors import (
    AttemptTimeout,
    FaultlineError,
    InvalidInput,
    Reject,
    StaleLease,
    UnknownTask,
)
from faultline.events import Event, log
from faultline.handler_errors import describe
from faultline.job import Job
from faultline.metrics import meter
from faultline.model import CommitPhase, StaleReason
from faultline.postgres.driver import DriverError
from faultline.postgres.errors import is_serialization_conflict
from faultline.postgres.outage import Outage
from faultline.workers.attempt import AbortCause, Aborted, Attempt, Ending, Raised, Returned
from faultline.workers.blame import Blame
from faultline.workers.children import ChildDied, TaskMissing
from faultline.workers.handler_resources import HandlerResources
from faultline.workers.leases import Lease
from faultline.workers.outcomes import Outcomes

if TYPE_CHECKING:
    from faultline.tracing.attempt import AttemptTrace

_CONFLICT_TRIES = 5


class Execution:
    def __init__(
        self,
        app: Faultline,
        settlement: Outcomes,
        tools: HandlerResources,
        *,
        self_fencing: bool,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        is_leaving: Callable[[], bool] = lambda: False,
        blame: Blame | None = None,
    ) -> None:
        self._app = app
        self._settlement = settlement
        self._tools = tools
        self._self_fencing = self_fencing
        self._spawn = spawn
        self._is_leaving = is_leaving  # nothing is started any more
        self._blame = blame or Blame(Outage())
        self.attempts: set[Attempt] = set()

    async def run(self, lease: Lease) -> None:
        """One attempt from beginning to end. Nothing that a job does makes it raise."""
        try:
            if not lease.begin():
                self._settlement.finish(lease, exit_reason="released")
                return
            if lease.is_lost:  # while it waited for a slot
                self._settlement.finish(lease, exit_reason="stale")
                return
            if lease.trace is not None:
                await self._trace(lease, lease.trace)
            if self._is_leaving():  # told while this one was on its way: no handler has begun
                await self._settlement.release(lease)
                return
            try:
                attempt = self._prepare(lease)
            except UnknownTask:
                await self._settlement.defer([lease])
                return
            except InvalidInput as error:
                # Not for good: in a rolling deploy a newer worker may take other arguments.
                await self._settlement.fail(lease, error)
                return
            self.attempts.add(attempt)
            try:
                began = time.monotonic() if meter.current.is_on else 0.0
                ending = await self._run_handler(attempt)
                if meter.current.is_on:
                    meter.current.executed(lease.claim.queue, time.monotonic() - began)
                if not attempt.is_abandoned:
                    await self._settle(attempt, ending)
            finally:
                self.attempts.discard(attempt)
        except BaseException:
            self._settlement.let_go(lease)
            raise

    async def _trace(self, lease: Lease, trace: AttemptTrace) -> None:
        trace.begin()
        if lease.claim.crashes > 0:
            before = await self._settlement.predecessor(lease)
            if before is not None and before.outcome in ("expired", "worker_lost"):
                trace.took_over(
                    lost_worker=before.worker, lost_token=before.fencing_token, cause=before.outcome
                )

    def _prepare(self, lease: Lease) -> Attempt:
        claim = lease.claim
        task = self._app.find_task(claim.task)
        async_pool = self._tools.async_pool if task.is_async else None
        job = Job(claim, lease, self._tools.pool, async_pool)
        job._prepare = self._app.prepare_transaction
        if lease.trace is not None:
            job._trace = lease.trace
        attempt = Attempt(
            claim,
            task,
            job,
            lease,
            arguments=task.arguments(claim.payload_json),  # does it fit? Known before it runs.
            loop=asyncio.get_running_loop(),
            on_abandoned=self._abandon,
        )
        lease.on_lost = lambda cause: self._lost(attempt, cause)
        return attempt

    def _abandon(self, attempt: Attempt, cause: AbortCause) -> None:
        """The handler goes on regardless, and keeps its slot; its attempt is over."""
        stack = attempt.stack()
        self._settlement.say(
            Event.DEGRADED,
            attempt.lease,
            reason="a handler cannot be ended, and keeps its slot",
            frame=None if stack is None else stack.frame,
            stack=None if stack is None else stack.text,
        )
        self._spawn(self._settle_abandoned(attempt, cause))

    async def _settle_abandoned(self, attempt: Attempt, cause: AbortCause) -> None:
        try:
            await self._settle(attempt, Aborted(cause))
        except BaseException:
            self._settlement.let_go(attempt.lease)
            raise

    def _lost(self, attempt: Attempt, cause: str) -> None:
        """Called by the heartbeat's or the sentinel's thread."""
        if attempt.job._phase is CommitPhase.UNCOMMITTED:
            self._settlement.say(Event.LEASE_LOST, attempt.lease, cause=cause)
            if self._self_fencing:
                attempt.abort(AbortCause.LEASE_LOST)

    async def _run_handler(self, attempt: Attempt) -> Ending:
        if log.is_verbose:
            number = attempt.claim.attempt
            self._settlement.say(Event.EXECUTION_STARTED, attempt.lease, attempt=number)
        ending = await attempt.run(self._tools)
        for _ in range(_CONFLICT_TRIES - 1):
            if not (isinstance(ending, Raised) and is_serialization_conflict(ending.error)):
                break
            # A conflict says nothing about the lease, and that nothing was committed. If the fence
            # still holds, the same attempt may simply run again.
            try:
                await self._settlement.assert_fence(attempt.lease)
            except (FaultlineError, DriverError) as error:
                if isinstance(error, StaleLease):
                    attempt.job._refusal = error
                return Raised(error)
            attempt.job._forget_transactions()
            ending = await attempt.run(self._tools)
        return ending

    async def _settle(self, attempt: Attempt, ending: Ending) -> None:
        settlement, lease, phase = self._settlement, attempt.lease, attempt.job._phase
        error = ending.error if isinstance(ending, Raised) else attempt.job._refusal
        lost = attempt.job._not_committed
        if error is None and lost is not None and isinstance(ending, Returned):
            ending = Raised(lost)  # the handler swallowed it
        if phase is CommitPhase.COMMITTED:
            if error is not None:
                settlement.say(Event.HANDLER_ERROR_AFTER_COMMIT, lease, error=describe(error))
            settlement.committed(lease)
        elif _is_refusal(error, attempt.job):
            await settlement.stale(lease, error)
        elif phase is CommitPhase.FENCED:
            is_the_servers = await self._blame.is_the_servers(attempt, error)
            await settlement.resolve(lease, error, is_charged=not is_the_servers)
        else:
            await self._end_uncommitted(attempt, ending)

    async def _end_uncommitted(self, attempt: Attempt, ending: Ending) -> None:
        match ending:
            case Returned(value):
                await self._settlement.commit(attempt.lease, value)
            case Raised(TaskMissing()):
                self._settlement.task_is_missing(attempt.task.name)
                await self._settlement.defer([attempt.lease])
            case Raised(error) if await self._blame.is_the_servers(attempt, error):
                await self._settlement.release_after_outage(attempt.lease, error)
            case Raised(error):
                reason = "rejected" if isinstance(error, Reject) else None
                if (
                    isinstance(error, ChildDied)
                    and attempt.claim.attempt >= attempt.claim.max_attempts
                ):
                    reason = "poison"
                await self._settlement.fail(attempt.lease, error, reason=reason)
            case Aborted(cause):
                await self._end_aborted(attempt, cause)
            case _:
                assert_never(ending)

    async def _end_aborted(self, attempt: Attempt, cause: AbortCause) -> None:
        match cause:
            case AbortCause.LEASE_LOST:  # somebody else has it, or soon will: nothing to write
                self._settlement.finish(attempt.lease, exit_reason="stale")
            case AbortCause.TIMEOUT:
                limit = attempt.task.options.timeout_seconds
                error = AttemptTimeout(f"{attempt.task.name} ran longer than {limit:g} s")
                await self._settlement.fail(attempt.lease, error)
            case AbortCause.DRAIN:
                await self._settlement.release(attempt.lease)
            case _:
                assert_never(cause)


def _is_refusal(error: Exception | None, job: Job) -> TypeGuard[StaleLease]:
    """Whether the database refused this very job, for another reason than its own second commit.

    A StaleLease that the handler made itself, or got from another job's methods, is its own failure.
    """
    return (
        job._refusal is not None
        and isinstance(error, StaleLease)
        and error.job_id in (None, str(job.id))
        and error.reason != StaleReason.ALREADY_COMMITTED
    )
