"""Writes the outcome of an attempt to the database, through outages too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from faultline.errors import FaultlineError, InvalidInput, NotCommitted, StaleLease, UnknownTask
from faultline.events import Event, emit, log
from faultline.handler_errors import describe, summary
from faultline.metrics import meter
from faultline.model import Claim, CommitOutcome, JobState, StaleReason
from faultline.payload import encode_json
from faultline.postgres.driver import DriverError, LockNotAvailable
from faultline.postgres.reconnecting import ReconnectingSession, is_transient
from faultline.postgres.sessions import AsyncConnection
from faultline.statements import jobs, locks, protocol
from faultline.statements.jobs import LoggedAttempt
from faultline.statements.protocol import CommitVerdict, FailVerdict
from faultline.statements.session_settings import Session
from faultline.statements.statement import Statement
from faultline.steady import steady_now
from faultline.workers.background import BackgroundTasks, Wakeup
from faultline.workers.committer import Committer, Entry
from faultline.workers.leases import HeldLeases, Lease
from faultline.workers.unknown_tasks import UnknownTasks

T = TypeVar("T")


class Outcomes:
    def __init__(
        self,
        worker_id: str,
        *,
        book: HeldLeases,
        committer: Committer,
        make_session: Callable[..., ReconnectingSession],
        background: BackgroundTasks,
        retry_seconds: Callable[[Claim], float],
        wakeup: Wakeup,
    ) -> None:
        self._worker_id = worker_id
        self._book = book
        self._committer = committer
        self._make_session = make_session
        self._background = background
        self._retry_seconds = retry_seconds
        self._wakeup = wakeup
        self.unknown_tasks = UnknownTasks()
        # For every outcome except success: a locked row of one job must not delay the commits of others.
        self._slow_path = make_session(purpose="outcomes", on_connect=_limit_lock_waits)

    @property
    def pending_commits(self) -> int:
        return self._committer.pending

    async def commits_written(self) -> None:
        """Wait until every result has its verdict."""
        await self._committer.drained()

    async def close(self) -> None:
        await self._slow_path.close()

    async def assert_fence(self, lease: Lease) -> None:
        await self._slow_path.run(protocol.assert_fence(lease.claim))

    async def predecessor(self, lease: Lease) -> LoggedAttempt | None:
        """The outcome of the previous attempt, for a trace; None if it cannot be read."""
        try:
            logged = await self._slow_path.run(jobs.attempts_of(lease.claim.job_id))
        except (FaultlineError, DriverError):
            return None
        return logged[-1] if logged else None

    # ── success ──────────────────────────────────────────────────────────────────────────────────

    async def commit(self, lease: Lease, value: Any) -> None:
        """Give the result of a handler without writes to the committer, and free the slot."""
        try:
            result = None if value is None else encode_json(value, what="the result")
        except InvalidInput as error:
            await self.fail(lease, error, reason="rejected")
            return
        lease.on_lost = None  # the committer's verdict decides
        self._committer.submit(Entry(lease, result, self._on_verdict, self._may_wait_for_row))

    def _on_verdict(self, lease: Lease, verdict: CommitVerdict | Exception) -> None:
        if isinstance(verdict, Exception):
            self._background.spawn(self._later(lease, self.fail(lease, verdict)))
        elif verdict.outcome is CommitOutcome.STALE:
            error = StaleLease(verdict.reason or "unknown", current_token=verdict.current_token)
            self._background.spawn(self._later(lease, self.stale(lease, error)))
        else:
            self.committed(lease)

    async def _may_wait_for_row(self, lease: Lease) -> bool:
        """Whether a commit goes on waiting for a locked row; if not, its lease runs out.

        The lock keeps heartbeats from renewing the lease, so the wait has an end.
        """
        if await self._is_held_by_prepared(lease):
            self.let_go(lease)
            return False
        if steady_now() <= lease.deadline + lease.lease_seconds:
            return True
        self.say(
            Event.DEGRADED,
            lease,
            reason="a session locked the job until its lease had run out, and its commit is given up:"
            f" faultline why {lease.claim.id} names the session",
        )
        self.let_go(lease)
        return False

    async def _later(self, lease: Lease, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except BaseException:
            self.let_go(lease)
            raise

    def let_go(self, lease: Lease) -> None:
        """Stop renewing the lease of an attempt that ended early: it runs out."""
        self._book.remove(lease)
        if lease.trace is not None:
            lease.trace.finish("abandoned")

    def committed(self, lease: Lease) -> None:
        meter.current.succeeded(lease.claim)
        if log.is_verbose:
            self.say(Event.COMMIT_OK, lease)
        self.finish(lease, exit_reason="success")

    async def resolve(
        self, lease: Lease, error: Exception | None, *, is_charged: bool = True
    ) -> None:
        """Find out how a transaction ended whose COMMIT got no answer.

        An entry under this token and lease is success. Its absence proves nothing, because the COMMIT may
        still be on its way. So the worker ends the lease itself, under the row's lock: either the late
        commit came first, and the database says that the job is finished, or the late commit will be
        refused.
        """
        self._book.remove(lease)  # a heartbeat must not renew the lease that is about to be ended
        if error is not None:
            self.say(Event.COMMIT_UNKNOWN, lease, error=summary(error))
        in_ledger = protocol.in_ledger(lease.claim)
        if await self._persist(self._slow_path, in_ledger, lease):
            self.committed(lease)
            return
        # In its own session: it may have to wait for the row.
        session = self._make_session(purpose="resolve", on_connect=_limit_lock_waits)
        cause = error or NotCommitted("the handler rolled back the transaction that it had fenced")
        try:
            if is_charged:
                await self._fail(lease, cause, reason=None, session=session)
            else:
                await self._release_after_outage(lease, cause, session=session)
        except StaleLease as stale:
            if await self._persist(session, in_ledger, lease):
                self.committed(lease)
            else:
                await self.stale(lease, stale)
        finally:
            await session.close()

    # ── anything else ────────────────────────────────────────────────────────────────────────────

    async def fail(self, lease: Lease, error: Exception, *, reason: str | None = None) -> None:
        """Record a failure.

        The job runs again later unless its attempts are spent, or `reason` says that a retry is of no
        use.
        """
        try:
            await self._fail(lease, error, reason=reason, session=self._slow_path)
        except StaleLease as stale:
            await self.stale(lease, stale)

    async def _fail(
        self, lease: Lease, error: Exception, *, reason: str | None, session: ReconnectingSession
    ) -> None:
        if lease.trace is not None:
            lease.trace.failed(error)
        delay = self._retry_seconds(lease.claim)
        statement = protocol.fail(
            lease.claim, error=describe(error), retry_seconds=delay, reason=reason
        )
        verdict = await self._persist(session, statement, lease)
        if verdict is not None:
            self._say_failed(lease, error, verdict, delay)
        self.finish(lease, exit_reason="failed")

    def _say_failed(
        self, lease: Lease, error: Exception, verdict: FailVerdict, delay: float
    ) -> None:
        if verdict.state is JobState.QUEUED:
            meter.current.retried(lease.claim.queue)
            seconds = round(delay, 3)
            self.say(
                Event.JOB_RETRY_SCHEDULED, lease, error=summary(error), retry_in_seconds=seconds
            )
            self._wakeup.set_in(delay)
        else:
            meter.current.failed(lease.claim.queue, verdict.failed_reason)
            self.say(Event.JOB_DEAD, lease, error=summary(error), reason=verdict.failed_reason)

    async def release(self, lease: Lease) -> None:
        """Release the job without charging an attempt."""
        if not lease.begin():  # the heartbeat's thread releases it
            self.finish(lease, exit_reason="released")
            return
        try:
            await self._release(lease, session=self._slow_path)
        except StaleLease as stale:
            await self.stale(lease, stale)

    async def _release(self, lease: Lease, *, session: ReconnectingSession) -> None:
        if await self._persist(session, protocol.release(lease.claim), lease):
            self.say(Event.JOB_RELEASED, lease)
        self.finish(lease, exit_reason="released")

    async def release_after_outage(self, lease: Lease, error: Exception) -> None:
        """Release a job whose server failed; charge an attempt if that happened too often."""
        try:
            await self._release_after_outage(lease, error, session=self._slow_path)
        except StaleLease as stale:
            await self.stale(lease, stale)

    async def _release_after_outage(
        self, lease: Lease, error: Exception, *, session: ReconnectingSession
    ) -> None:
        statement = protocol.release_after_outage(lease.claim, error=describe(error))
        is_released = await self._persist(session, statement, lease)
        if is_released is False:
            await self._fail(lease, error, reason=None, session=session)
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
                    self.let_go(lease)
                raise

    async def _defer(self, task: str, leases: list[Lease]) -> None:
        now = steady_now()
        delay = self.unknown_tasks.delay_seconds(task, now)
        reason = f"worker {self._worker_id} does not know task {task}"
        statement = protocol.defer_many(
            [lease.claim for lease in leases], retry_seconds=delay, reason=reason
        )
        deferred = await self._persist(self._slow_path, statement, leases[0])
        for queue, number in Counter(lease.claim.queue for lease in leases).items():
            meter.current.deferred(queue, number)
        if told := self.unknown_tasks.to_say(task, len(deferred or leases), now):
            emit(
                Event.JOBS_DEFERRED,
                task=task,
                jobs=told,
                job_id=leases[0].claim.id,
                retry_in_seconds=round(delay, 3),
                worker=self._worker_id,
            )
        for lease in leases:
            if lease.trace is not None:
                lease.trace.begin()
                lease.trace.failed(UnknownTask(reason))
            self.finish(lease, exit_reason="deferred")

    async def stale(self, lease: Lease, error: StaleLease) -> None:
        """Record that PostgreSQL refused this worker.

        An expired lease is not final: it may have been renewed since, and a commit without an answer may
        have succeeded. So the lease is ended first, under the row's lock.
        """
        claim = lease.claim
        self._book.remove(lease)  # a heartbeat must not renew the lease that is about to be ended
        if lease.trace is not None:
            lease.trace.failed(error)
        if error.reason == StaleReason.LEASE_EXPIRED and not await self._give_up(lease, error):
            self.committed(lease)
            return
        record = protocol.record_rejection(
            claim.job_id,
            stale_token=claim.fencing_token,
            worker=self._worker_id,
            reason=error.reason,
        )
        overlap = await self._persist(self._slow_path, record, lease)
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

    async def _give_up(self, lease: Lease, error: StaleLease) -> bool:
        """End an expired lease, so that another worker can claim the job at once.

        False if the attempt has succeeded after all.
        """
        delay = self._retry_seconds(lease.claim)
        statement = protocol.fail(lease.claim, error=describe(error), retry_seconds=delay)
        try:
            verdict = await self._persist(self._slow_path, statement, lease)
        except StaleLease as stale:  # "already committed" means this worker's own entry
            return stale.reason != StaleReason.ALREADY_COMMITTED
        if verdict is not None:
            self._say_failed(lease, error, verdict, delay)
        return True

    # ── shared by all ends ───────────────────────────────────────────────────────────────────────

    async def _persist(
        self, session: ReconnectingSession, statement: Statement[T], lease: Lease
    ) -> T | None:
        """Run a statement through outages, up to the length of a lease.

        None if an earlier try without an answer had done it, if the database stays away, or if a prepared
        transaction locks the job: then the lease decides.
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
            lockers = await self._slow_path.run(locks.lockers_of(lease.claim.job_id))
        except (FaultlineError, DriverError):
            return False
        prepared = [found.prepared_as for found in lockers if found.prepared_as is not None]
        for name in prepared:
            gid = name.replace("'", "''")
            self.say(
                Event.DEGRADED,
                lease,
                reason=f"the prepared transaction '{gid}' locks the job, and how it ends is open: run"
                f" COMMIT PREPARED '{gid}' or ROLLBACK PREPARED '{gid}'",
            )
        return bool(prepared)

    def finish(self, lease: Lease, *, exit_reason: str) -> None:
        lease.on_lost = None
        self._book.remove(lease)
        if log.is_verbose:
            self.say(Event.WORKER_EXIT, lease, reason=exit_reason)
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


async def _limit_lock_waits(conn: AsyncConnection, session: Session) -> None:
    if not session.is_pooled:
        await conn.execute("SET lock_timeout = '1s'")
