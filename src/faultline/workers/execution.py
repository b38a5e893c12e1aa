"""Runs one attempt: the handler first, then the write of its outcome."""

from __future__ import annotations

import asyncio
import time
from typing import Any, TypeGuard, assert_never

from faultline import results
from faultline.app import Faultline
from faultline.attempt_transactions import AttemptTransactions
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
from faultline.logs import set_current_job
from faultline.metrics import meter
from faultline.model import CommitPhase, StaleReason
from faultline.postgres.driver import DriverError
from faultline.postgres.errors import is_serialization_conflict
from faultline.retry_control import Retry, Snooze, too_late
from faultline.retry_policy import request_of
from faultline.sentry import sentry
from faultline.steady import steady_now
from faultline.workers import unanswered_commit
from faultline.workers.attempt import AbortCause, Aborted, Attempt, Ending, Raised, Returned
from faultline.workers.background import BackgroundTasks
from faultline.workers.children import ChildDied, TaskMissing
from faultline.workers.handler_resources import HandlerResources
from faultline.workers.leases import Lease
from faultline.workers.outcomes import Outcomes
from faultline.workers.progress_reports import ProgressReports
from faultline.workers.server_failure import ServerFailure
from faultline.workers.traces import begin_trace

_CONFLICT_TRIES = 5


class Execution:
    def __init__(
        self,
        app: Faultline,
        outcomes: Outcomes,
        resources: HandlerResources,
        *,
        attempts: set[Attempt],
        background: BackgroundTasks,
        stopping: asyncio.Event,
        server_failure: ServerFailure,
        self_fencing: bool,
        progress: ProgressReports | None = None,
    ) -> None:
        self._app = app
        self._outcomes = outcomes
        self._resources = resources
        self._attempts = attempts
        self._background = background
        self._stopping = stopping
        self._server_failure = server_failure
        self._self_fencing = self_fencing
        self._progress = progress
        self._report = None if progress is None else progress.report
        self._loop: asyncio.AbstractEventLoop | None = None  # found once, not for each job

    async def run(self, lease: Lease) -> None:
        """Run one attempt from beginning to end. No error of a job makes this raise."""
        try:
            if not lease.begin():
                self._outcomes.finish(lease, exit_reason="released")
                return
            if lease.is_lost:  # lost while it waited for a slot
                self._outcomes.finish(lease, exit_reason="stale")
                return
            if lease.trace is not None:
                await begin_trace(self._outcomes, lease, lease.trace)
            if self._stopping.is_set():  # the worker was stopped before the handler began
                await self._outcomes.release(lease)
                return
            try:
                attempt = self._prepare(lease)
            except UnknownTask:
                await self._outcomes.defer([lease])
                return
            except InvalidInput as error:
                # The failure is retried: in a rolling deploy a newer worker may accept the arguments.
                await self._outcomes.fail(lease, error)
                return
            set_current_job(attempt.job)  # in the context of this task, which runs no other one now
            if sentry.is_on:
                with sentry.scope(lease.claim):
                    await self._run_attempt(attempt)
            else:
                await self._run_attempt(attempt)
        except BaseException:
            self._outcomes.abandon(lease)
            raise

    async def _run_attempt(self, attempt: Attempt) -> None:
        self._attempts.add(attempt)
        if self._outcomes.job_lines is not None:
            attempt.lease.began_at = steady_now()
        try:
            began = time.monotonic() if meter.current.is_on else 0.0
            ending = await self._run_handler(attempt)
            if meter.current.is_on:
                meter.current.executed(attempt.claim.queue, time.monotonic() - began)
            if not attempt.is_abandoned and not self._commit_plain(attempt, ending):
                await self._write_outcome(attempt, ending)
        finally:
            self._attempts.discard(attempt)

    def _prepare(self, lease: Lease) -> Attempt:
        loop = self._loop or asyncio.get_running_loop()
        self._loop = loop
        claim = lease.claim
        task = self._app.find_task(claim.task)
        arguments = task.arguments(claim.payload_json)  # refused before the handler runs
        transactions = AttemptTransactions(claim, lease, lease.trace)
        job = Job(
            claim,
            lease,
            self._resources.pool,
            self._resources.async_pool if task.is_async else None,
            transactions=transactions,
            prepare=self._app.prepare_transaction,
            report=self._report,
            session_makers=self._app.session_makers,
        )
        attempt = Attempt(
            task,
            job,
            lease,
            transactions,
            arguments=arguments,
            loop=loop,
            on_abandoned=self._abandon,
        )
        lease.on_lost = lambda cause: self._lost(attempt, cause)
        return attempt

    def _abandon(self, attempt: Attempt, cause: AbortCause) -> None:
        """End an attempt whose handler cannot be ended. The handler keeps its slot."""
        stack = attempt.stack()
        self._outcomes.say(
            Event.DEGRADED,
            attempt.lease,
            reason="a handler cannot be ended, and keeps its slot",
            frame=None if stack is None else stack.frame,
            stack=None if stack is None else stack.text,
        )
        self._background.spawn(self._write_abandoned_outcome(attempt, cause))

    async def _write_abandoned_outcome(self, attempt: Attempt, cause: AbortCause) -> None:
        try:
            await self._write_outcome(attempt, Aborted(cause))
        except BaseException:
            self._outcomes.abandon(attempt.lease)
            raise

    def _lost(self, attempt: Attempt, cause: str) -> None:
        """Called by the thread of the heartbeat or of self-fencing."""
        if attempt.transactions.phase is CommitPhase.UNCOMMITTED:
            self._outcomes.say(Event.LEASE_LOST, attempt.lease, cause=cause)
            if self._self_fencing:
                attempt.abort(AbortCause.LEASE_LOST)

    async def _run_handler(self, attempt: Attempt) -> Ending:
        if log.is_verbose:
            number = attempt.claim.attempt
            self._outcomes.say(Event.EXECUTION_STARTED, attempt.lease, attempt=number)
        ending = await attempt.run(self._resources)
        for _ in range(_CONFLICT_TRIES - 1):
            if not (isinstance(ending, Raised) and is_serialization_conflict(ending.error)):
                break
            # A serialization conflict means that nothing was committed. If the fence still holds, the same
            # attempt runs again.
            try:
                await self._outcomes.assert_fence(attempt.lease)
            except (FaultlineError, DriverError) as error:
                if isinstance(error, StaleLease):
                    attempt.transactions.refusal = error
                return Raised(error)
            attempt.transactions.forget()
            attempt.job.result = None
            ending = await attempt.run(self._resources)
        return ending

    def _commit_plain(self, attempt: Attempt, ending: Ending) -> bool:
        """Pass the result to the committer if nothing else is to be decided.

        That is so for most handlers: they returned, and used no transaction, `job.result` or progress.
        """
        if (
            not isinstance(ending, Returned)
            or not attempt.transactions.is_unused
            or attempt.job.result is not None
            or (self._progress is not None and self._progress.is_used)
        ):
            return False
        try:
            self._outcomes.submit(attempt.lease, ending.value)
        except InvalidInput:
            return False
        return True

    async def _write_outcome(self, attempt: Attempt, ending: Ending) -> None:
        outcomes, lease, transactions = self._outcomes, attempt.lease, attempt.transactions
        if isinstance(ending, Raised):
            ending = Raised(request_of(ending.error))
        if self._progress is not None and self._progress.is_used:
            if isinstance(ending, Returned) or transactions.phase is not CommitPhase.UNCOMMITTED:
                self._progress.drop(lease)
            else:
                await self._progress.settle(lease)
        phase = transactions.phase
        error = ending.error if isinstance(ending, Raised) else transactions.refusal
        lost = transactions.not_committed
        if phase is CommitPhase.COMMITTED:
            if error is not None:
                self._report_late_error(lease, error)
            outcomes.committed(lease)
            self._report_discarded(attempt, ending, transactions.stored_result)
        elif _is_refusal(error, transactions):
            await outcomes.record_rejection(lease, error)
        elif phase is CommitPhase.FENCED:
            is_server_failure = await self._server_failure.caused(attempt, error)
            if await unanswered_commit.resolve(
                outcomes, lease, error, is_charged=not is_server_failure
            ):
                self._report_discarded(attempt, ending, transactions.stored_result)
                if isinstance(
                    error, Snooze | Retry
                ):  # raised after the commit of an own transaction
                    self._report_late_error(lease, error)
        else:
            if error is None and lost is not None and isinstance(ending, Returned):
                ending = Raised(lost)  # the handler swallowed it
            await self._end_uncommitted(attempt, ending)

    async def _end_uncommitted(self, attempt: Attempt, ending: Ending) -> None:
        match ending:
            case Returned(value):
                value = results.result_of(attempt.job.result, value)
                if attempt.transactions.discarded or attempt.job.result is not None:
                    self._report_discarded(attempt, ending, _text_of(value))
                await self._outcomes.commit(attempt.lease, value)
            case Raised(TaskMissing()):
                self._outcomes.task_is_missing(attempt.task.name)
                await self._outcomes.defer([attempt.lease])
            case Raised(Snooze() as request):
                await self._outcomes.snooze(attempt.lease, request)
            case Raised(error) if await self._server_failure.caused(attempt, error):
                await self._outcomes.release_after_outage(attempt.lease, error)
            case Raised(error):
                reason = "rejected" if isinstance(error, Reject) else None
                if (
                    isinstance(error, ChildDied)
                    and attempt.claim.attempt >= attempt.claim.max_attempts
                ):
                    reason = "poison"
                await self._outcomes.fail(attempt.lease, error, reason=reason)
            case Aborted(cause):
                await self._end_aborted(attempt, cause)
            case _:
                assert_never(ending)

    def _report_late_error(self, lease: Lease, error: Exception) -> None:
        """Log an error that changes nothing, because the job has succeeded."""
        if isinstance(error, Snooze | Retry):
            error = too_late(error)
        self._outcomes.say(Event.HANDLER_ERROR_AFTER_COMMIT, lease, error=describe(error))
        self._outcomes.capture(lease, error, is_final=True)

    def _report_discarded(self, attempt: Attempt, ending: Ending, stored: str | None) -> None:
        """Log a value of the handler that is not the result, and so is lost."""
        if not isinstance(ending, Returned):
            return
        what = attempt.transactions.discarded or results.discarded(
            stored, own=attempt.job.result, returned=ending.value
        )
        if what is not None:
            attempt.transactions.discarded = what
            self._outcomes.say(
                Event.RESULT_DISCARDED,
                attempt.lease,
                task=attempt.task.name,
                reason=f"{what}, which is not stored: {results.ADVICE}",
            )
            if (report := self._app.on_result_discarded) is not None:
                report(attempt.claim, what)

    async def _end_aborted(self, attempt: Attempt, cause: AbortCause) -> None:
        match cause:
            case AbortCause.LEASE_LOST:  # another worker has the job, or soon will
                self._outcomes.finish(attempt.lease, exit_reason="stale")
            case AbortCause.TIMEOUT:
                limit = attempt.timeout_seconds
                error = AttemptTimeout(f"{attempt.task.name} ran longer than {limit:g} s")
                await self._outcomes.fail(attempt.lease, error)
            case AbortCause.DRAIN:
                await self._outcomes.release(attempt.lease)
            case _:
                assert_never(cause)


def _text_of(value: Any) -> str | None:
    try:
        return results.encode_result(value)
    except InvalidInput:  # the commit is refused for it
        return None


def _is_refusal(
    error: Exception | None, transactions: AttemptTransactions
) -> TypeGuard[StaleLease]:
    """True if the database refused this job, and not because it had already committed.

    A StaleLease that the handler raised itself, or got from another job's methods, is an ordinary failure.
    """
    return (
        transactions.refusal is not None
        and isinstance(error, StaleLease)
        and error.job_id in (None, transactions.claim.id)
        and error.reason != StaleReason.ALREADY_COMMITTED
    )
