"""From a claim to its end in the database: run the handler, then commit, fail, release or stand aside."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor as ThreadExecutor
from dataclasses import dataclass
from typing import Any, TypeVar, assert_never

import psycopg

from faultline import protocol
from faultline.app import Faultline
from faultline.config import WorkerSettings
from faultline.database import AsyncPool, Pool, is_serialization_conflict
from faultline.errors import (
    AttemptTimeout,
    FaultlineError,
    InvalidInput,
    NotCommitted,
    Reject,
    StaleLease,
    UnknownTask,
)
from faultline.events import Event, emit, log
from faultline.job import CommitPhase, Job
from faultline.link import Link, is_transient
from faultline.model import CommitOutcome, JobState, StaleReason
from faultline.payload import encode_json
from faultline.protocol import CommitVerdict, FailVerdict, Statement
from faultline.workers.attempt import AbortCause, Aborted, Attempt, Ending, Raised, Returned
from faultline.workers.committer import Committer, Entry
from faultline.workers.leases import Lease, LeaseBook, steady_now

T = TypeVar("T")

_CONFLICT_TRIES = 5
_MAX_ERROR_LENGTH = 10_000


@dataclass(frozen=True, slots=True)
class Tools:
    """What an attempt works with; owned by the worker."""

    app: Faultline
    settings: WorkerSettings
    book: LeaseBook
    committer: Committer
    make_link: Callable[[str], Link]
    threads: ThreadExecutor
    pool: Callable[[], Pool]
    async_pool: AsyncPool
    spawn: Callable[[Coroutine[Any, Any, None]], None]
    wake_in: Callable[[float], None]


class Executor:
    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._desk = tools.make_link("desk")  # everything that is not the happy path
        self.attempts: set[Attempt] = set()

    async def close(self) -> None:
        await self._desk.close()

    async def run(self, lease: Lease) -> None:
        """One attempt from beginning to end. Nothing that a job does makes it raise."""
        try:
            attempt = self._prepare(lease)
        except (UnknownTask, InvalidInput) as error:
            await self._fail_or_stale(lease, error, reason="rejected")
            return
        self.attempts.add(attempt)
        try:
            ending = await self._run_handler(attempt)
            await self._settle(attempt, ending)
            await attempt.thread_ended()
        finally:
            self.attempts.discard(attempt)

    def _prepare(self, lease: Lease) -> Attempt:
        claim = lease.claim
        task = self._tools.app.find_task(claim.task)
        async_pool = self._tools.async_pool if task.is_async else None
        job = Job(claim, lease, self._tools.pool, async_pool)
        task.bind(job, claim.payload)
        attempt = Attempt(claim, task, job, lease)
        lease.on_lost = lambda cause: self._lost(attempt, cause)
        return attempt

    def _lost(self, attempt: Attempt, cause: str) -> None:
        """Called by the heartbeat's or the sentinel's thread."""
        if attempt.job._phase is CommitPhase.UNCOMMITTED:
            self._say(Event.LEASE_LOST, attempt.lease, cause=cause)
            if self._tools.settings.self_fencing:
                attempt.abort(AbortCause.LEASE_LOST)

    async def _run_handler(self, attempt: Attempt) -> Ending:
        if log.is_verbose:
            self._say(Event.EXECUTION_STARTED, attempt.lease, attempt=attempt.claim.attempt)
        ending = await attempt.run(self._tools.threads)
        for _ in range(_CONFLICT_TRIES - 1):
            if not (isinstance(ending, Raised) and is_serialization_conflict(ending.error)):
                break
            # A conflict says nothing about the lease, and that nothing was committed. If the fence
            # still holds, the same attempt may simply run again.
            try:
                await self._desk.run(protocol.assert_fence(attempt.claim))
            except (FaultlineError, psycopg.Error) as error:
                return Raised(error)
            attempt.job._phase = CommitPhase.UNCOMMITTED
            ending = await attempt.run(self._tools.threads)
        return ending

    async def _settle(self, attempt: Attempt, ending: Ending) -> None:
        lease, phase = attempt.lease, attempt.job._phase
        error = ending.error if isinstance(ending, Raised) else None
        if phase is CommitPhase.COMMITTED:
            if error is not None:
                self._say(Event.HANDLER_ERROR_AFTER_COMMIT, lease, error=_describe(error))
            self._committed(lease)
        elif isinstance(error, StaleLease) and error.job_id in (None, str(lease.claim.job_id)):
            await self._stale(lease, error)
        elif phase is CommitPhase.FENCED:
            await self._resolve(
                lease, error or NotCommitted("the job's transaction was not committed")
            )
        else:
            await self._end_uncommitted(attempt, ending)

    async def _end_uncommitted(self, attempt: Attempt, ending: Ending) -> None:
        lease = attempt.lease
        match ending:
            case Returned(value):
                await self._submit(lease, value)
            case Raised(error):
                reason = "rejected" if isinstance(error, Reject) else None
                await self._fail_or_stale(lease, error, reason=reason)
            case Aborted(cause):
                await self._end_aborted(attempt, cause)
            case _:
                assert_never(ending)

    async def _end_aborted(self, attempt: Attempt, cause: AbortCause) -> None:
        match cause:
            case AbortCause.LEASE_LOST:  # somebody else has it, or soon will: nothing to say
                self._close(attempt.lease, exit_reason="stale")
            case AbortCause.TIMEOUT:
                limit = attempt.task.options.timeout_seconds
                await self._fail_or_stale(
                    attempt.lease, AttemptTimeout(f"ran longer than {limit:g} s")
                )
            case AbortCause.DRAIN:
                await self.release(attempt.lease)
            case _:
                assert_never(cause)

    # ── the ends ─────────────────────────────────────────────────────────────────────────────────

    async def _submit(self, lease: Lease, value: Any) -> None:
        """Nothing of the user's to commit with it: leave it to the committer, and free the slot."""
        try:
            result = None if value is None else encode_json(value, what="the result")
        except InvalidInput as error:
            await self._fail_or_stale(lease, error, reason="rejected")
            return
        lease.on_lost = None  # the committer's verdict will tell
        entry = Entry(lease.claim, result, lambda verdict: self._on_verdict(lease, verdict))
        self._tools.committer.submit(entry)

    def _on_verdict(self, lease: Lease, verdict: CommitVerdict | Exception) -> None:
        if isinstance(verdict, Exception):
            self._tools.spawn(self._fail_or_stale(lease, verdict))
        elif verdict.outcome is CommitOutcome.STALE:
            error = StaleLease(verdict.reason or "unknown", current_token=verdict.current_token)
            self._tools.spawn(self._stale(lease, error))
        else:
            self._committed(lease)

    def _committed(self, lease: Lease) -> None:
        if log.is_verbose:
            self._say(Event.COMMIT_OK, lease)
        self._close(lease, exit_reason="success")

    async def _fail_or_stale(
        self, lease: Lease, error: Exception, *, reason: str | None = None
    ) -> None:
        try:
            await self._fail(lease, error, reason=reason)
        except StaleLease as stale:
            await self._stale(lease, stale)

    async def _fail(
        self, lease: Lease, error: Exception, *, reason: str | None = None, link: Link | None = None
    ) -> None:
        """Record the failure and schedule the next attempt, if there is one; StaleLease if refused."""
        claim = lease.claim
        task = self._tools.app.tasks.get(claim.task)
        delay = task.options.retry.delay_seconds(claim.attempt) if task else 0.0
        statement = protocol.fail(claim, error=_describe(error), retry_seconds=delay, reason=reason)
        verdict = await self._persist(link or self._desk, statement, lease)
        if verdict is not None:
            self._say_failed(lease, error, verdict, delay)
        self._close(lease, exit_reason="failed")

    def _say_failed(
        self, lease: Lease, error: Exception, verdict: FailVerdict, delay: float
    ) -> None:
        summary = f"{type(error).__name__}: {error}"[:500]
        if verdict.state is JobState.QUEUED:
            self._say(
                Event.JOB_RETRY_SCHEDULED, lease, error=summary, retry_in_seconds=round(delay, 3)
            )
            self._tools.wake_in(delay)
        else:
            self._say(Event.JOB_DEAD, lease, error=summary, reason=verdict.failed_reason)

    async def release(self, lease: Lease) -> None:
        """Hand the job back without using up an attempt."""
        try:
            await self._persist(self._desk, protocol.release(lease.claim), lease)
        except StaleLease as stale:
            await self._stale(lease, stale)
            return
        self._say(Event.JOB_RELEASED, lease)
        self._close(lease, exit_reason="released")

    async def _resolve(self, lease: Lease, error: Exception | None) -> None:
        """The job's entry is in a transaction whose end we have not seen: the user owns it, or the
        answer to COMMIT was lost, and it may still be on its way.

        An entry under our own token and lease is success. Its absence proves nothing, so we end the
        lease ourselves, under the row's lock: either the late commit is there first, and we are told
        that the job is finished, or it will be refused.
        """
        self._tools.book.remove(lease)  # a heartbeat must not revive what we are about to end
        if error is not None:
            self._say(Event.COMMIT_UNKNOWN, lease, error=f"{type(error).__name__}: {error}"[:500])
        link = self._tools.make_link("resolve")  # of its own: it may have to wait for the row
        in_ledger = protocol.in_ledger(lease.claim)
        try:
            if await self._persist(link, in_ledger, lease):
                self._committed(lease)
                return
            try:
                reason = error or NotCommitted("the handler's transaction was rolled back")
                await self._fail(lease, reason, link=link)
            except StaleLease as stale:
                if await self._persist(link, in_ledger, lease):
                    self._committed(lease)
                else:
                    await self._stale(lease, stale)
        finally:
            await link.close()

    async def _stale(self, lease: Lease, error: StaleLease) -> None:
        claim = lease.claim
        if error.reason == StaleReason.ALREADY_COMMITTED and await self._persist(
            self._desk, protocol.in_ledger(claim), lease
        ):
            self._committed(lease)  # the handler committed twice; the first one counts
            return
        record = protocol.record_rejection(
            claim.job_id,
            stale_token=claim.fencing_token,
            worker=self._tools.settings.worker_id,
            reason=error.reason,
        )
        overlap = await self._persist(self._desk, record, lease)
        emit(
            Event.STALE_WRITE_BLOCKED,
            job_id=str(claim.job_id),
            stale_token=claim.fencing_token,
            current_token=error.current_token,
            reason=error.reason,
            overlap_seconds=overlap.total_seconds() if overlap is not None else None,
            worker=self._tools.settings.worker_id,
        )
        self._close(lease, exit_reason="stale")

    # ── shared by all ends ───────────────────────────────────────────────────────────────────────

    async def _persist(self, link: Link, statement: Statement[T], lease: Lease) -> T | None:
        """Run it, through outages as long as a lease may last; None when it turns out that an earlier
        try, whose answer was lost, had done it, or when the database stays away: the lease tells then.
        """
        tried_before = False
        while True:
            try:
                return await link.run(statement)
            except StaleLease as stale:
                if tried_before and stale.reason == StaleReason.NOT_RUNNING:
                    return None
                raise
            except (FaultlineError, psycopg.Error) as error:
                if not is_transient(error):
                    raise
                if steady_now() > lease.deadline + lease.lease_seconds:
                    return None
                tried_before = True
                await link.pause(error)

    def _close(self, lease: Lease, *, exit_reason: str) -> None:
        lease.on_lost = None
        self._tools.book.remove(lease)
        if log.is_verbose:
            self._say(Event.WORKER_EXIT, lease, reason=exit_reason)

    def _say(self, event: Event, lease: Lease, **fields: Any) -> None:
        emit(
            event,
            job_id=str(lease.claim.job_id),
            token=lease.claim.fencing_token,
            **fields,
            worker=self._tools.settings.worker_id,
        )


def _describe(error: Exception) -> str:
    """The error as PostgreSQL can store it: no NUL, no lone surrogates, not too long."""
    text = "".join(traceback.format_exception(error)).strip()
    head = f"{type(error).__name__}: {error}"[:_MAX_ERROR_LENGTH]
    full = f"{head}\n\n{text}"[:_MAX_ERROR_LENGTH]
    return full.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")
