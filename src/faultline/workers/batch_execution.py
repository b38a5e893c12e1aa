"""Runs one batch, and its handler again without jobs whose leases were lost."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple, cast

from faultline.app import Faultline
from faultline.batch import Batch, BatchJob
from faultline.batch_task import BatchTask
from faultline.batch_transactions import BatchTransactions
from faultline.errors import InvalidInput, UnknownTask
from faultline.events import Event, log
from faultline.logs import set_current_job
from faultline.metrics import meter
from faultline.model import Claim, CommitPhase
from faultline.postgres.errors import is_serialization_conflict
from faultline.sentry import sentry
from faultline.steady import steady_now
from faultline.workers.attempt import AbortCause, Aborted, Attempt, Ending, Raised
from faultline.workers.background import BackgroundTasks
from faultline.workers.batch_attempt import BatchAttempt
from faultline.workers.batch_outcomes import BatchOutcomes
from faultline.workers.handler_resources import HandlerResources
from faultline.workers.leases import Lease
from faultline.workers.outcomes import Outcomes
from faultline.workers.progress_reports import ProgressReports
from faultline.workers.server_failure import ServerFailure
from faultline.workers.traces import begin_trace

_CONFLICT_TRIES = 5
# A batch that runs for this long is shown as such on its jobs, until they report progress themselves.
_SHOWN_AFTER_SECONDS = 1.0


class Member(NamedTuple):
    lease: Lease
    arguments: Any


class BatchExecution:
    """Runs batches of one worker. Each run has at least one job less than the last.

    `outcomes` writes the outcomes of the jobs after a run.
    """

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
        progress: ProgressReports,
    ) -> None:
        self._app = app
        self._outcomes = outcomes
        self._resources = resources
        self._attempts = attempts
        self._background = background
        self._stopping = stopping
        self._self_fencing = self_fencing
        self._progress = progress
        self.outcomes = BatchOutcomes(app, outcomes, server_failure, progress)

    async def run(self, leases: Sequence[Lease]) -> None:
        """Run a batch from beginning to end. No error of a job makes this raise."""
        try:
            held = [lease for lease in leases if self._begin(lease)]
            await self._trace(held)
            if held and self._stopping.is_set():  # the worker was stopped before the handler began
                for lease in held:
                    await self._outcomes.release(lease)
                return
            members = await self._members(held)
            while members:
                members = await self._run_once(members)
        except BaseException:
            for lease in leases:
                self._outcomes.abandon(lease)
            raise

    def _begin(self, lease: Lease) -> bool:
        if not lease.begin():
            self._outcomes.finish(lease, exit_reason="released")
        elif lease.is_lost:  # lost while it waited for a slot
            self._outcomes.finish(lease, exit_reason="stale")
        else:
            if self._outcomes.job_lines is not None:
                lease.began_at = steady_now()
            return True
        return False

    async def _trace(self, leases: Sequence[Lease]) -> None:
        traces = []
        for lease in leases:
            if lease.trace is not None:
                await begin_trace(self._outcomes, lease, lease.trace)
                traces.append(lease.trace)
        if traces:
            traces[0].share_batch(traces[1:])

    async def _members(self, leases: Sequence[Lease]) -> list[Member]:
        """The jobs with their arguments; those whose payload does not fit fail alone."""
        members = []
        for lease in leases:
            try:
                task = self._task(lease.claim.task)
                members.append(Member(lease, task.job_arguments(lease.claim.payload_json)))
            except UnknownTask:
                await self._outcomes.defer([lease])
            except InvalidInput as error:
                await self._outcomes.fail(lease, error)
        return members

    async def _run_once(self, members: Sequence[Member]) -> list[Member]:
        """Run the handler once; returns the jobs for which it must run again."""
        held = []
        for member in members:
            if member.lease.is_lost:  # since the last run
                self._outcomes.finish(member.lease, exit_reason="stale")
            else:
                held.append(member)
        if not held:
            return []
        attempt = self._prepare(held)
        self._attempts.add(attempt)
        shown = asyncio.get_running_loop().call_later(
            _SHOWN_AFTER_SECONDS, self._show, attempt, len(held)
        )
        try:
            with self._current(attempt, len(held)):
                ending = await self._run_handler(attempt)
            if attempt.is_abandoned:
                return []
            again = await self.outcomes.write(attempt, ending)
        finally:
            shown.cancel()
            self._attempts.discard(attempt)
        return [member for member in held if member.lease in again]

    @contextlib.contextmanager
    def _current(self, attempt: BatchAttempt, jobs: int) -> Iterator[None]:
        """Around the handler: what its log lines and its errors in Sentry belong to."""
        set_current_job(attempt.batch)  # in the context of this task, which runs no other attempt
        began = time.monotonic()
        with sentry.scope_of_batch(attempt.claim, jobs) if sentry.is_on else nullcontext():
            yield
        meter.current.executed(attempt.claim.queue, time.monotonic() - began)
        meter.current.batch(attempt.claim.queue, jobs)

    def _prepare(self, members: Sequence[Member]) -> BatchAttempt:
        leases = [member.lease for member in members]
        claims = [lease.claim for lease in leases]
        task = self._task(claims[0].task)
        jobs: dict[str, BatchJob[Any]] = {}
        reported: set[str] = set()

        def report(claim: Claim, fraction: float, message: str | None) -> None:
            reported.add(claim.id)
            self._progress.report(claim, fraction, message)

        def results(of: Sequence[Claim]) -> list[Any]:
            return [jobs[claim.id].result for claim in of]

        transactions = BatchTransactions(claims, leases, results, leases[0].trace)
        async_pool = self._resources.async_pool if task.is_async else None
        for lease, arguments in members:
            jobs[lease.claim.id] = BatchJob(
                lease.claim,
                arguments,
                lease=lease,
                pool=self._resources.pool,
                async_pool=async_pool,
                transactions=transactions,
                report=report,
            )
        batch = Batch(
            list(jobs.values()),
            transactions,
            self._resources.pool,
            async_pool,
            self._app.prepare_transaction,
        )
        attempt = BatchAttempt(
            task,
            batch,
            leases,
            transactions,
            loop=asyncio.get_running_loop(),
            on_abandoned=self._abandon,
        )
        attempt.reported = reported
        for lease in leases:
            lease.on_lost = partial(self._lost, attempt, lease)
        return attempt

    def _task(self, name: str) -> BatchTask[Any, Any]:
        return cast("BatchTask[Any, Any]", self._app.find_task(name))

    def _lost(self, attempt: BatchAttempt, lease: Lease, cause: str) -> None:
        """Called by the thread of the heartbeat or of self-fencing."""
        if attempt.transactions.phase is CommitPhase.UNCOMMITTED:
            self._outcomes.say(Event.LEASE_LOST, lease, cause=cause)
            if self._self_fencing:
                attempt.abort(AbortCause.LEASE_LOST)

    async def _run_handler(self, attempt: BatchAttempt) -> Ending:
        if log.is_verbose:
            for lease in attempt.leases:
                number = lease.claim.attempt
                self._outcomes.say(Event.EXECUTION_STARTED, lease, attempt=number)
        ending = await attempt.run(self._resources)
        for _ in range(_CONFLICT_TRIES - 1):
            if not (isinstance(ending, Raised) and is_serialization_conflict(ending.error)):
                break
            # Nothing was committed. The next transaction checks the fence of each job again.
            attempt.transactions.forget()
            for job in attempt.batch.jobs:
                job.result = None
            ending = await attempt.run(self._resources)
        return ending

    def _show(self, attempt: BatchAttempt, jobs: int) -> None:
        """Say on the running jobs that they are done together."""
        for lease in attempt.leases:
            if lease.claim.id not in attempt.reported:
                self._progress.report(lease.claim, 0.0, f"in a batch of {jobs}")

    def _abandon(self, abandoned: Attempt, cause: AbortCause) -> None:
        """End the jobs of a handler that cannot be ended. The handler keeps its slot."""
        attempt = cast("BatchAttempt", abandoned)
        stack = attempt.stack()
        self._outcomes.say(
            Event.DEGRADED,
            attempt.lease,
            reason="a handler cannot be ended, and keeps its slot",
            frame=None if stack is None else stack.frame,
            stack=None if stack is None else stack.text,
        )
        self._background.spawn(self._write_abandoned(attempt, cause))

    async def _write_abandoned(self, attempt: BatchAttempt, cause: AbortCause) -> None:
        try:
            again = await self.outcomes.write(attempt, Aborted(cause))
            for lease in again:
                await self._outcomes.release(lease)
        except BaseException:
            for lease in attempt.leases:
                self._outcomes.abandon(lease)
            raise
