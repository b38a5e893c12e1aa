"""Why a job is not running: reads what the explanation needs, in one read-only look."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from faultline.explanation import Situation, explain
from faultline.inspector.job_details import JobDetails
from faultline.inspector.reader import Look
from faultline.model import JobRecord, JobState
from faultline.statements import clock, epochs, jobs, locks, queues, workers
from faultline.statements.locks import LockHolder
from faultline.statements.workers import WorkerStatus


async def document(look: Look, job: JobDetails, *, is_discreet: bool) -> dict[str, Any]:
    """The answer that `faultline why` gives. A discreet one names no account and no query."""
    registered = await look.read(workers.registry())
    shared = {
        name
        for worker in registered
        if worker.status is WorkerStatus.ALIVE and job.queue in worker.queues
        for name in worker.queues
    }
    ahead, elsewhere = 0, 0
    if job.state == JobState.QUEUED:
        ahead, elsewhere = await look.read(jobs.jobs_ahead(job.id, sorted(shared)))
    paused = await look.read(queues.paused())
    holders = await _holders(look, job)
    if is_discreet:
        holders = [replace(holder, account=None, query=None) for holder in holders]
    answer = explain(
        Situation(
            now=await look.read(clock.database_time()),
            job=_record(job),
            workers=registered,
            is_led=await look.read(workers.is_led()),
            ahead=ahead,
            ahead_elsewhere=elsewhere,
            holders=holders,
            pause=next((pause for pause in paused if pause.queue == job.queue), None),
            deferral=await look.read(jobs.deferral_of(job.id)),
            was_restored=(await look.read(epochs.status())).is_refused,
        )
    )
    return {
        "answer": answer.answer,
        "code": answer.code,
        "facts": answer.facts,
        "advice": answer.advice,
    }


async def _holders(look: Look, job: JobDetails) -> list[LockHolder]:
    """The transaction that last locked the row, if it is still in progress. A read-only session cannot
    try the lock itself, and does not resolve several lockers of one row."""
    if job.state not in (JobState.QUEUED, JobState.RUNNING):
        return []
    locker = await look.read(locks.last_locker(job.id))
    return [] if locker is None else await look.read(locks.holders([locker]))


def _record(job: JobDetails) -> JobRecord:
    """The job as the explanation takes it, which looks at neither payload nor result."""
    return JobRecord(
        id=job.id,
        task=job.task,
        queue=job.queue,
        priority=job.priority,
        payload={},
        idempotency_key=job.idempotency_key,
        state=JobState(job.state),
        failed_reason=job.failed_reason,
        attempts=job.attempts,
        max_attempts=job.max_attempts,
        fencing_token=job.token,
        lease_owner=job.lease_owner,
        lease_expires_at=job.lease_expires_at,
        next_run_at=job.next_run_at,
        claimed_at=job.claimed_at,
        created_at=job.created_at,
        finished_at=job.finished_at,
        last_error=job.last_error,
        result=None,
    )
