"""Writes the outcome of each job of a batch after a run of its handler."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import assert_never

from faultline import results
from faultline.app import Faultline
from faultline.batch_transactions import JobsFailed
from faultline.errors import AttemptTimeout, NotCommitted, Reject, StaleLease
from faultline.events import Event
from faultline.handler_errors import describe
from faultline.model import CommitPhase, StaleReason
from faultline.retry_control import Retry, Snooze, too_late
from faultline.retry_policy import request_of
from faultline.workers import unanswered_commit
from faultline.workers.attempt import AbortCause, Aborted, Ending, Raised, Returned
from faultline.workers.batch_attempt import BatchAttempt
from faultline.workers.leases import Lease
from faultline.workers.outcomes import Outcomes
from faultline.workers.progress_reports import ProgressReports
from faultline.workers.server_failure import ServerFailure

_NONE: Set[Lease] = frozenset()


class BatchOutcomes:
    """`write` returns the leases of the jobs for which the handler must run again.

    They are always fewer than the jobs of the run: a handler runs again because of a job that fell out.
    """

    def __init__(
        self,
        app: Faultline,
        outcomes: Outcomes,
        server_failure: ServerFailure,
        progress: ProgressReports,
    ) -> None:
        self._app = app
        self._outcomes = outcomes
        self._server_failure = server_failure
        self._progress = progress

    async def write(self, attempt: BatchAttempt, ending: Ending) -> Set[Lease]:
        transactions = attempt.batch_transactions
        if isinstance(ending, Raised):
            ending = Raised(request_of(ending.error))
        await self._settle_progress(attempt, ending)
        error = ending.error if isinstance(ending, Raised) else transactions.refusal
        match transactions.phase:
            case CommitPhase.COMMITTED:
                await self._end_committed(attempt, ending, error)
                return _NONE
            case _ if transactions.refusal is not None and not isinstance(ending, Aborted):
                return await self._end_refused(attempt, transactions.refusal)
            case CommitPhase.FENCED:
                await self._resolve(attempt, error)
                return _NONE
            case CommitPhase.UNCOMMITTED:
                return await self._end_uncommitted(attempt, ending)
            case _:
                assert_never(transactions.phase)

    async def _settle_progress(self, attempt: BatchAttempt, ending: Ending) -> None:
        is_over = attempt.transactions.phase is not CommitPhase.UNCOMMITTED
        for lease in attempt.leases:
            if isinstance(ending, Returned) or is_over:
                self._progress.drop(lease)
            else:
                await self._progress.settle(lease)

    # ── the transaction was committed ────────────────────────────────────────────────────────────

    async def _end_committed(
        self, attempt: BatchAttempt, ending: Ending, error: Exception | None
    ) -> None:
        if error is not None:
            self._report_late_error(attempt.leases[0], error)
        self._finish_committed(attempt, ending)
        await self._end_failed(attempt)

    def _finish_committed(self, attempt: BatchAttempt, ending: Ending) -> None:
        transactions = attempt.batch_transactions
        fenced = {claim.id for claim in transactions.fenced}
        for lease in attempt.leases:
            if lease.claim.id in fenced:
                self._outcomes.committed(lease)
        for job in attempt.batch.jobs:
            stored = transactions.stored_results.get(job._claim.id)
            if (what := results.discarded(stored, own=job.result, returned=None)) is not None:
                self._say_discarded(attempt, job._claim.id, what)
        self._report_returned(attempt, ending)

    def _report_late_error(self, lease: Lease, error: Exception) -> None:
        """Log an error that changes nothing, because the jobs have succeeded."""
        if isinstance(error, Snooze | Retry):
            error = too_late(error)
        self._outcomes.say(Event.HANDLER_ERROR_AFTER_COMMIT, lease, error=describe(error))
        self._outcomes.capture(lease, error, is_final=True)

    def _report_returned(self, attempt: BatchAttempt, ending: Ending) -> None:
        if isinstance(ending, Returned) and ending.value is not None:
            what = f"the batch handler returned a {type(ending.value).__name__}"
            self._say_discarded(attempt, attempt.claim.id, what)

    def _say_discarded(self, attempt: BatchAttempt, job_id: str, what: str) -> None:
        lease = next(each for each in attempt.leases if each.claim.id == job_id)
        self._outcomes.say(
            Event.RESULT_DISCARDED,
            lease,
            task=attempt.task.name,
            reason=f"{what}, which is not stored: set job.result of each job before"
            " batch.transaction() ends",
        )
        if (report := self._app.on_result_discarded) is not None:
            report(lease.claim, what)

    # ── PostgreSQL refused it ────────────────────────────────────────────────────────────────────

    async def _end_refused(self, attempt: BatchAttempt, refusal: StaleLease) -> Set[Lease]:
        """End the jobs whose leases were lost; nothing of the others was committed."""
        errors = {error.job_id: error for error in refusal.jobs or (refusal,)}
        leases = attempt.leases
        refused = {lease: errors[lease.claim.id] for lease in leases if lease.claim.id in errors}
        if not refused:  # a refusal that names no job of this batch
            refused = dict.fromkeys(leases, refusal)
        for lease, error in refused.items():
            if error.reason == StaleReason.ALREADY_COMMITTED:  # under this very lease
                self._outcomes.committed(lease)
            else:
                await self._outcomes.record_rejection(lease, error)
        ended = await self._end_failed(attempt, but=refused.keys())
        return {lease for lease in leases if lease not in refused and lease not in ended}

    # ── COMMIT got no answer ─────────────────────────────────────────────────────────────────────

    async def _resolve(self, attempt: BatchAttempt, error: Exception | None) -> None:
        """Find out by the first job how the transaction ended, because it is one for all.

        If that job's lease could be ended under the lock of its row, the transaction cannot commit any more,
        because PostgreSQL refuses it for that job. Only then the other jobs are ended.
        """
        transactions = attempt.batch_transactions
        is_server_failure = await self._server_failure.caused(attempt, error)
        fenced = {claim.id for claim in transactions.fenced}
        first, *others = [lease for lease in attempt.leases if lease.claim.id in fenced]
        is_committed = await unanswered_commit.resolve(
            self._outcomes, first, error, is_charged=not is_server_failure
        )
        cause = error or NotCommitted("the handler rolled back the transaction that it had fenced")
        for lease in others:
            if is_committed:
                self._outcomes.committed(lease)
            elif is_server_failure:
                await self._outcomes.release_after_outage(lease, cause)
            else:
                await self._end(lease, cause)
        if is_committed and isinstance(error, Snooze | Retry):
            self._report_late_error(first, error)
        await self._end_failed(attempt)

    # ── nothing was committed ────────────────────────────────────────────────────────────────────

    async def _end_uncommitted(self, attempt: BatchAttempt, ending: Ending) -> Set[Lease]:
        transactions = attempt.batch_transactions
        if isinstance(ending, Aborted):
            return await self._end_aborted(attempt, ending.cause)
        lost = transactions.not_committed
        if isinstance(ending, Returned) and lost is not None:
            ending = Raised(lost)  # the handler swallowed it
        ended = await self._end_failed(attempt)
        others = {lease for lease in attempt.leases if lease not in ended}
        match ending:
            case Raised(JobsFailed()):
                return others
            case Returned() if transactions.must_run_again:  # the handler swallowed a step's end
                return others
            case Raised(error) if await self._server_failure.caused(attempt, error):
                for lease in self._in_order(attempt, others):
                    await self._outcomes.release_after_outage(lease, error)
            case Raised(error):
                for lease in self._in_order(attempt, others):
                    await self._end(lease, error)
            case Returned():
                jobs = {job._claim.id: job for job in attempt.batch.jobs}
                for lease in self._in_order(attempt, others):
                    await self._outcomes.commit(lease, jobs[lease.claim.id].result)
                self._report_returned(attempt, ending)
            case _:
                assert_never(ending)
        return _NONE

    async def _end_aborted(self, attempt: BatchAttempt, cause: AbortCause) -> Set[Lease]:
        ended = await self._end_failed(attempt)
        others = [lease for lease in attempt.leases if lease not in ended]
        match cause:
            case AbortCause.LEASE_LOST:
                lost = [lease for lease in others if lease.is_lost]
                for lease in lost:
                    self._outcomes.finish(lease, exit_reason="stale")
                return {lease for lease in others if lease not in lost}
            case AbortCause.TIMEOUT:
                limit = attempt.timeout_seconds
                error = AttemptTimeout(f"{attempt.task.name} ran longer than {limit:g} s")
                for lease in others:
                    await self._outcomes.fail(lease, error)
            case AbortCause.DRAIN:
                for lease in others:
                    await self._outcomes.release(lease)
            case _:
                assert_never(cause)
        return _NONE

    async def _end_failed(self, attempt: BatchAttempt, but: Set[Lease] = _NONE) -> Set[Lease]:
        """End the jobs that the handler has failed itself."""
        failed = attempt.batch_transactions.failed
        ended = [lease for lease in attempt.leases if lease.claim.id in failed and lease not in but]
        for lease in ended:
            await self._end(lease, request_of(failed[lease.claim.id]))
        return set(ended)

    async def _end(self, lease: Lease, error: Exception) -> None:
        if isinstance(error, Snooze):
            await self._outcomes.snooze(lease, error)
        else:
            reason = "rejected" if isinstance(error, Reject) else None
            await self._outcomes.fail(lease, error, reason=reason)

    @staticmethod
    def _in_order(attempt: BatchAttempt, chosen: Set[Lease]) -> Sequence[Lease]:
        return [lease for lease in attempt.leases if lease in chosen]
