"""Writes the outcome of an attempt, and repeats the write during an outage.

A transaction whose COMMIT got no answer is resolved by `unanswered_commit`, which uses the methods here.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from faultline.errors import FaultlineError, InvalidInput, StaleLease, UnknownTask
from faultline.events import Event, emit, log
from faultline.handler_errors import describe, logged_traceback, shortened, summary
from faultline.hooks import Hooks
from faultline.metrics import meter
from faultline.model import Claim, CommitOutcome, JobState, StaleReason
from faultline.postgres.driver import DriverError, LockNotAvailable
from faultline.postgres.reconnecting import ReconnectingSession, is_transient
from faultline.postgres.sessions import AsyncConnection
from faultline.results import encode_result
from faultline.retry_control import Snooze
from faultline.retry_policy import RetryDecision
from faultline.sentry import sentry
from faultline.statements import jobs, locks, protocol, snoozes
from faultline.statements.jobs import LoggedAttempt
from faultline.statements.protocol import CommitVerdict, FailVerdict
from faultline.statements.session_settings import Session
from faultline.statements.statement import Statement
from faultline.steady import steady_now
from faultline.workers.background import BackgroundTasks, Wakeup
from faultline.workers.children import failure_of
from faultline.workers.committer import Committer, Entry
from faultline.workers.job_lines import JobLines
from faultline.workers.leases import HeldLeases, Lease
from faultline.workers.unknown_tasks import UnknownTasks, why_deferred

T = TypeVar("T")

_LONGEST_TIMER_SECONDS = 3600.0  # a poll finds jobs that are due later


class Outcomes:
    def __init__(
        self,
        worker_id: str,
        *,
        held_leases: HeldLeases,
        committer: Committer,
        make_session: Callable[..., ReconnectingSession],
        background: BackgroundTasks,
        decide_retry: Callable[[Claim, Exception], RetryDecision],
        wakeup: Wakeup,
        hooks: Hooks | None = None,
        job_lines: JobLines | None = None,
        tasks: Iterable[str] = (),
    ) -> None:
        self._worker_id = worker_id
        self._hooks = hooks
        self._tasks = tasks  # the names that this worker knows, for suggestions
        self.job_lines = job_lines
        self._held_leases = held_leases
        self._committer = committer
        self._make_session = make_session
        self._background = background
        self._decide_retry = decide_retry
        self._wakeup = wakeup
        self.unknown_tasks = UnknownTasks()
        # Writes every outcome except success. The committer has another session, so that the locked row of
        # one job does not delay the commits of other jobs.
        self.session = self.new_session(purpose="outcomes")

    def new_session(self, *, purpose: str) -> ReconnectingSession:
        return self._make_session(purpose=purpose, on_connect=_limit_lock_waits)

    @property
    def pending_commits(self) -> int:
        return self._committer.pending

    async def commits_written(self) -> None:
        """Wait until every result has its verdict."""
        await self._committer.drained()

    async def close(self) -> None:
        await self.session.close()

    async def assert_fence(self, lease: Lease) -> None:
        await self.session.run(protocol.assert_fence(lease.claim))

    async def predecessor(self, lease: Lease) -> LoggedAttempt | None:
        """The outcome of the previous attempt, for a trace; None if it cannot be read."""
        try:
            logged = await self.session.run(jobs.attempts_of(lease.claim.job_id))
        except (FaultlineError, DriverError):
            return None
        return logged[-1] if logged else None

    # ── success ───────────────────────────────────────────────────────────────────────────────────

    async def commit(self, lease: Lease, value: Any) -> None:
        """Pass the result of a handler that wrote nothing to the committer."""
        try:
            self.submit(lease, value)
        except InvalidInput as error:
            await self.fail(lease, error, reason="rejected")

    def submit(self, lease: Lease, value: Any) -> None:
        """Pass a result to the committer; raises InvalidInput if it cannot be stored."""
        result = encode_result(value)
        lease.on_lost = None  # the committer's verdict decides
        self._committer.submit(Entry(lease, result, self))

    def on_verdict(self, lease: Lease, verdict: CommitVerdict | Exception) -> None:
        """Write down how the commit of a submitted result ended."""
        if isinstance(verdict, Exception):
            self._background.spawn(self._abandon_on_error(lease, self.fail(lease, verdict)))
        elif verdict.outcome is CommitOutcome.STALE:
            error = StaleLease(verdict.reason or "unknown", current_token=verdict.current_token)
            self._background.spawn(
                self._abandon_on_error(lease, self.record_rejection(lease, error))
            )
        else:
            self.committed(lease)

    async def may_wait_for_row(self, lease: Lease) -> bool:
        """Whether a commit still waits for a locked row; if not, the lease is abandoned.

        The wait has an end, because heartbeats cannot renew the lease while the row is locked.
        """
        if await self._is_held_by_prepared(lease):
            self.abandon(lease)
            return False
        if steady_now() <= lease.deadline + lease.lease_seconds:
            return True
        self.say(
            Event.DEGRADED,
            lease,
            reason="a session locked the job until its lease had expired, so the job was not committed:"
            f" faultline why {lease.claim.id} names the session",
        )
        self.abandon(lease)
        return False

    async def _abandon_on_error(self, lease: Lease, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except BaseException:
            self.abandon(lease)
            raise

    def stop_renewing(self, lease: Lease) -> None:
        self._held_leases.remove(lease)

    def abandon(self, lease: Lease) -> None:
        """Write no outcome: the lease is renewed no more, and the job runs again."""
        self.stop_renewing(lease)
        if lease.trace is not None:
            lease.trace.finish("abandoned")

    def committed(self, lease: Lease) -> None:
        meter.current.succeeded(lease.claim)
        if log.is_verbose:
            self.say(Event.COMMIT_OK, lease)
        self.finish(lease, exit_reason="success")

    # ── every other outcome ───────────────────────────────────────────────────────────────────────

    async def fail(self, lease: Lease, error: Exception, *, reason: str | None = None) -> None:
        """Record a failure.

        The job is retried later, unless no attempts are left or a `reason` makes the failure final.
        """
        try:
            await self.write_failure(lease, error, reason=reason, session=self.session)
        except StaleLease as stale:
            await self.record_rejection(lease, stale)

    async def write_failure(
        self, lease: Lease, error: Exception, *, reason: str | None, session: ReconnectingSession
    ) -> None:
        """Record a failure on this session. Raises StaleLease if PostgreSQL refuses it."""
        if lease.trace is not None:
            lease.trace.failed(error)
        delay, gives_up = self._decide_retry(lease.claim, error)
        if reason is None and gives_up:
            reason = "gave_up"
        statement = protocol.fail(
            lease.claim, error=describe(error), retry_seconds=delay, reason=reason
        )
        verdict = await self.persist(session, statement, lease)
        if verdict is not None:
            self._say_failed(lease, error, verdict, delay)
        is_retried = verdict is not None and verdict.state is JobState.QUEUED
        self.finish(lease, exit_reason="failed", retry_in_seconds=delay if is_retried else None)

    def _say_failed(
        self, lease: Lease, error: Exception, verdict: FailVerdict, delay: float
    ) -> None:
        claim, is_final = lease.claim, verdict.state is not JobState.QUEUED
        failure = {
            "task": claim.task,
            "attempt": claim.attempt,
            "error": summary(error),
            "traceback": _trace_of(error),
        }
        if is_final:
            meter.current.failed(claim.queue, verdict.failed_reason)
            self.say(Event.JOB_DEAD, lease, **failure, reason=verdict.failed_reason)
            if self._hooks is not None and self._hooks.dead:
                self._background.spawn(self._call_dead_hooks(self._hooks, claim.job_id, error))
        else:
            meter.current.retried(claim.queue)
            seconds = round(delay, 3)
            self.say(Event.JOB_RETRY_SCHEDULED, lease, **failure, retry_in_seconds=seconds)
            if delay <= _LONGEST_TIMER_SECONDS:
                self._wakeup.set_in(delay)
        self.capture(lease, error, is_final=is_final)

    def capture(self, lease: Lease, error: Exception, *, is_final: bool) -> None:
        """Send a handler's error to Sentry, unless the child process has done it.

        In a thread: the SDK reads source files and the list of installed packages for an event, which
        can take seconds on a busy machine.
        """
        failure = failure_of(error)
        if sentry.is_on and (failure is None or not failure.is_captured):
            context = lease.context or copy_context()
            send = partial(sentry.capture, lease.claim, error, is_final=is_final, context=context)
            asyncio.get_running_loop().run_in_executor(None, send)

    async def _call_dead_hooks(self, hooks: Hooks, job_id: UUID, error: Exception) -> None:
        try:
            record = await self.session.run(jobs.get_job(job_id))
        except (FaultlineError, DriverError) as failure:
            reason = "a dead job could not be read, so that on_dead was not called"
            emit(Event.DEGRADED, reason=reason, job_id=str(job_id), error=summary(failure))
            return
        if record is not None:
            await hooks.died(record, error)

    async def snooze(self, lease: Lease, request: Snooze) -> None:
        """Queue the job again for when its handler asked, without charging an attempt."""
        try:
            await self.write_snooze(lease, request, session=self.session)
        except StaleLease as stale:
            await self.record_rejection(lease, stale)

    async def write_snooze(
        self, lease: Lease, request: Snooze, *, session: ReconnectingSession
    ) -> None:
        """Snooze the job on this session. Raises StaleLease if PostgreSQL refuses it."""
        statement = snoozes.snooze(
            lease.claim, seconds=request.seconds, until=request.until, reason=request.reason
        )
        snoozed = await self.persist(session, statement, lease)
        if snoozed is not None:
            meter.current.snoozed(lease.claim.queue)
            self.say(
                Event.JOB_SNOOZED,
                lease,
                task=lease.claim.task,
                due_at=snoozed.next_run_at.isoformat(),
                snoozes=snoozed.snoozes,
                reason=request.reason,
            )
            if request.seconds is not None and request.seconds <= _LONGEST_TIMER_SECONDS:
                self._wakeup.set_in(max(1.0, request.seconds))
        self.finish(lease, exit_reason="snoozed")

    async def release(self, lease: Lease) -> None:
        """Release the job without charging an attempt."""
        if not lease.begin():  # the heartbeat's thread releases it
            self.finish(lease, exit_reason="released")
            return
        try:
            await self._release(lease, session=self.session)
        except StaleLease as stale:
            await self.record_rejection(lease, stale)

    async def _release(self, lease: Lease, *, session: ReconnectingSession) -> None:
        if await self.persist(session, protocol.release(lease.claim), lease):
            self.say(Event.JOB_RELEASED, lease)
        self.finish(lease, exit_reason="released")

    async def release_after_outage(self, lease: Lease, error: Exception) -> None:
        """Release a job after a server failure, or fail it after too many of them."""
        try:
            await self.write_outage_release(lease, error, session=self.session)
        except StaleLease as stale:
            await self.record_rejection(lease, stale)

    async def write_outage_release(
        self, lease: Lease, error: Exception, *, session: ReconnectingSession
    ) -> None:
        """Release the job on this session. Raises StaleLease if PostgreSQL refuses it."""
        statement = protocol.release_after_outage(lease.claim, error=describe(error))
        is_released = await self.persist(session, statement, lease)
        if is_released is False:
            await self.write_failure(lease, error, reason=None, session=session)
            return
        if is_released:
            self.say(Event.JOB_RELEASED, lease, error=summary(error))
        self.finish(lease, exit_reason="released")

    def task_is_missing(self, task: str) -> None:
        """Record that a child process, whose code differs, did not find the task."""
        self.unknown_tasks.missing(task, steady_now())

    async def defer(self, leases: Sequence[Lease]) -> None:
        """Defer jobs of tasks that this worker does not know, one round trip per task."""
        by_task: dict[str, list[Lease]] = {}
        for lease in leases:
            by_task.setdefault(lease.claim.task, []).append(lease)
        for task, group in by_task.items():
            try:
                await self._defer(task, group)
            except BaseException:
                for lease in group:
                    self.abandon(lease)
                raise

    async def _defer(self, task: str, leases: list[Lease]) -> None:
        now = steady_now()
        delay = self.unknown_tasks.delay_seconds(task, now)
        reason = f"worker {self._worker_id} does not know task {task}"
        statement = protocol.defer_many(
            [lease.claim for lease in leases], retry_seconds=delay, reason=reason
        )
        deferred = await self.persist(self.session, statement, leases[0])
        for queue, number in Counter(lease.claim.queue for lease in leases).items():
            meter.current.deferred(queue, number)
        if to_report := self.unknown_tasks.jobs_to_report(task, len(deferred or leases), now):
            emit(
                Event.JOBS_DEFERRED,
                reason=why_deferred(task, self._tasks),
                task=task,
                jobs=to_report,
                job_id=leases[0].claim.id,
                retry_in_seconds=round(delay, 3),
                worker=self._worker_id,
            )
        for lease in leases:
            if lease.trace is not None:
                lease.trace.begin()
                lease.trace.failed(UnknownTask(reason))
            self.finish(lease, exit_reason="deferred")

    async def record_rejection(self, lease: Lease, error: StaleLease) -> None:
        """Record that PostgreSQL refused this worker.

        "Expired" is not a final answer: the lease may have been renewed since, and an earlier commit
        without an answer may have succeeded. So the lease is ended first, under the row's lock.
        """
        # A heartbeat must not renew the lease that is about to be ended.
        self.stop_renewing(lease)
        claim = lease.claim
        if lease.trace is not None:
            lease.trace.failed(error)
        if error.reason == StaleReason.LEASE_EXPIRED and not await self._end_expired_lease(
            lease, error
        ):
            self.committed(lease)
            return
        record = protocol.record_rejection(
            claim.job_id,
            stale_token=claim.fencing_token,
            worker=self._worker_id,
            reason=error.reason,
        )
        overlap = await self.persist(self.session, record, lease)
        overlap_seconds = overlap.total_seconds() if overlap is not None else None
        meter.current.rejected(error.reason, overlap_seconds)
        refusal = {
            "stale_token": claim.fencing_token,
            "current_token": error.current_token,
            "reason": error.reason,
            "overlap_seconds": overlap_seconds,
        }
        emit(Event.STALE_WRITE_BLOCKED, job_id=claim.id, **refusal, worker=self._worker_id)
        if lease.trace is not None:
            lease.trace.note(Event.STALE_WRITE_BLOCKED, refusal)
        self.finish(lease, exit_reason="stale")

    async def _end_expired_lease(self, lease: Lease, error: StaleLease) -> bool:
        """End an expired lease, so that another worker can claim the job at once.

        False if the attempt has succeeded after all.
        """
        delay = self._decide_retry(lease.claim, error).delay_seconds
        statement = protocol.fail(lease.claim, error=describe(error), retry_seconds=delay)
        try:
            verdict = await self.persist(self.session, statement, lease)
        except (
            StaleLease
        ) as stale:  # "already committed" means that this worker's own commit succeeded
            return stale.reason != StaleReason.ALREADY_COMMITTED
        if verdict is not None:
            self._say_failed(lease, error, verdict, delay)
        return True

    # ── shared by all outcomes ────────────────────────────────────────────────────────────────────

    async def persist(
        self, session: ReconnectingSession, statement: Statement[T], lease: Lease
    ) -> T | None:
        """Run a statement, and retry it during an outage.

        None if an earlier try without an answer took effect. Also None if the outage lasts until the lease
        has been over for its own length, or if a prepared transaction locks the job: the lease expires.
        """
        tried_before = False
        while True:
            try:
                return await session.run(statement)
            except StaleLease as stale:
                if tried_before and stale.reason == StaleReason.NOT_RUNNING:
                    return None
                raise
            except (FaultlineError, DriverError) as error:
                if not is_transient(error):
                    raise
                if steady_now() > lease.deadline + lease.lease_seconds:
                    return None
                tried_before = True
                if not isinstance(error, LockNotAvailable):
                    await session.pause(error)
                elif await self._is_held_by_prepared(lease):
                    return None

    async def _is_held_by_prepared(self, lease: Lease) -> bool:
        """Whether a prepared transaction locks the job's row; it is logged."""
        try:
            lockers = await self.session.run(locks.lockers_of(lease.claim.job_id))
        except (FaultlineError, DriverError):
            return False
        prepared = [found.prepared_as for found in lockers if found.prepared_as is not None]
        for name in prepared:
            gid = name.replace("'", "''")
            self.say(
                Event.DEGRADED,
                lease,
                reason=f"the prepared transaction '{gid}' locks the job until it is ended: run"
                f" COMMIT PREPARED '{gid}' or ROLLBACK PREPARED '{gid}'",
            )
        return bool(prepared)

    def finish(
        self, lease: Lease, *, exit_reason: str, retry_in_seconds: float | None = None
    ) -> None:
        lease.on_lost = None
        self._held_leases.remove(lease)
        if log.is_verbose:
            self.say(Event.WORKER_EXIT, lease, reason=exit_reason)
        if self.job_lines is not None:
            self.job_lines.attempt_ended(lease, exit_reason, retry_in_seconds=retry_in_seconds)
        if lease.trace is not None:
            lease.trace.finish(exit_reason)

    def say(self, event: Event, lease: Lease, **fields: Any) -> None:
        emit(
            event,
            job_id=lease.claim.id,
            token=lease.claim.fencing_token,
            **fields,
            worker=self._worker_id,
        )
        if lease.trace is not None:
            lease.trace.note(event, fields)


def _trace_of(error: Exception) -> str | None:
    """The traceback for a log line; of an error in a child process, the child's."""
    failure = failure_of(error)
    return logged_traceback(error) if failure is None else shortened(failure.trace) or None


async def _limit_lock_waits(conn: AsyncConnection, session: Session) -> None:
    if not session.is_pooled:
        await conn.execute("SET lock_timeout = '1s'")
