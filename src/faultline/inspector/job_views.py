"""The inspector's documents about jobs: details, why, timeline, search."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from faultline import timeline
from faultline.errors import UnknownJob
from faultline.explanation import Situation, explain
from faultline.inspector.reader import ReadTransaction
from faultline.model import JobRecord, JobState
from faultline.statements import clock, epochs, job_pages, jobs, leadership, locks, queues, workers
from faultline.statements.job_pages import JobFilter
from faultline.statements.jobs import JobDetails, JobRow, LedgerEntry, Rejection
from faultline.statements.locks import LockHolder
from faultline.statements.workers import WorkerStatus

SEARCH_SECONDS = 2.0
MAX_SEARCHED_JOBS = 1_000_000
SEARCH_STEP_JOBS = 20_000  # examined by each statement after the first

# ── one job ──────────────────────────────────────────────────────────────────────────────────────


async def job(tx: ReadTransaction, job_id: UUID, *, hides_details: bool) -> dict[str, Any]:
    found = await tx.read(jobs.details_of(job_id))
    if found is None:
        raise await _unknown(tx, job_id)
    return {
        **asdict(found),
        "payload": _exact(found.payload_text),
        "result": _exact(found.result_text),
        "why": await _why(tx, found, hides_details=hides_details),
    }


def _exact(text: str | None) -> orjson.Fragment | None:
    """JSON as PostgreSQL wrote it: parsing would round large numbers."""
    return None if text is None else orjson.Fragment(text)


async def _unknown(tx: ReadTransaction, job_id: UUID) -> UnknownJob:
    entry = await tx.read(jobs.ledger_entry_of(job_id))
    if entry is None:
        return UnknownJob(f"there is no job {job_id}", hint="retention may have purged it")
    return UnknownJob(
        f"there is no job {job_id} any more: retention has purged it",
        hint=f"it took effect at {entry.committed_at.isoformat()}, by {entry.worker}",
    )


# ── why it is not running ────────────────────────────────────────────────────────────────────────


async def _why(tx: ReadTransaction, job: JobDetails, *, hides_details: bool) -> dict[str, Any]:
    """The answer of `faultline why`.

    With `hides_details` it names no account and no query.
    """
    registered = await tx.read(workers.registry())
    shared = {
        name
        for worker in registered
        if worker.status is WorkerStatus.ALIVE and job.queue in worker.queues
        for name in worker.queues
    }
    ahead, elsewhere = 0, 0
    if job.state == JobState.QUEUED:
        ahead, elsewhere = await tx.read(jobs.jobs_ahead(job.id, sorted(shared)))
    paused = await tx.read(queues.paused())
    holders = await _holders(tx, job)
    if hides_details:
        holders = [replace(holder, account=None, query=None) for holder in holders]
    answer = explain(
        Situation(
            now=await tx.read(clock.database_time()),
            job=_record(job),
            workers=registered,
            is_led=await tx.read(leadership.is_led()),
            ahead=ahead,
            ahead_elsewhere=elsewhere,
            holders=holders,
            pause=next((pause for pause in paused if pause.queue == job.queue), None),
            deferral=await tx.read(jobs.deferral_of(job.id)),
            was_restored=(await tx.read(epochs.status())).is_refused,
        )
    )
    return {
        "answer": answer.answer,
        "code": answer.code,
        "facts": answer.facts,
        "advice": answer.advice,
    }


async def _holders(tx: ReadTransaction, job: JobDetails) -> list[LockHolder]:
    """The transaction that last locked the row, if it is still in progress.

    A read-only session cannot try the lock itself, and cannot resolve several lockers of one row.
    """
    if job.state not in (JobState.QUEUED, JobState.RUNNING):
        return []
    locker = await tx.read(locks.last_locker(job.id))
    return [] if locker is None else await tx.read(locks.holders([locker]))


def _record(job: JobDetails) -> JobRecord:
    """The job for `explain`, which uses neither payload nor result."""
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


# ── its timeline ─────────────────────────────────────────────────────────────────────────────────


async def job_timeline(tx: ReadTransaction, job_id: UUID) -> dict[str, Any]:
    progress = await tx.read(jobs.progress_of(job_id))
    if progress is None:
        raise await _unknown(tx, job_id)
    logged = await tx.read(jobs.attempts_of(job_id, limit=timeline.LONGEST))
    entry = await tx.read(jobs.ledger_entry_of(job_id))
    rejections = await tx.read(jobs.rejections_of(job_id, limit=timeline.LONGEST))
    spans = timeline.attempts(progress, logged, entry)
    return {
        "job_id": job_id,
        "state": progress.state,
        "created_at": progress.created_at,
        "now": progress.now,
        "attempts": spans,
        "rejections": [_rejection(each) for each in rejections],
        "ledger": _ledger(entry),
        "events": timeline.events(progress, spans, logged, rejections, entry),
        "is_complete": max(len(logged), len(rejections)) < timeline.LONGEST,
    }


def _rejection(rejection: Rejection) -> dict[str, Any]:
    fields = asdict(rejection)
    return {**fields, "overlap_seconds": fields.pop("overlap").total_seconds()}


def _ledger(entry: LedgerEntry | None) -> dict[str, Any] | None:
    if entry is None:
        return None
    return {
        "token": entry.fencing_token,
        "worker": entry.worker,
        "committed_at": entry.committed_at,
    }


# ── a search ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class SearchPage:
    """`searched_until` is null at the end of the list, or if the page is full."""

    jobs: list[JobRow]
    next: str | None
    searched: int
    searched_until: datetime | None


async def search(
    tx: ReadTransaction,
    wanted: JobFilter,
    *,
    limit: int,
    after: str | None = None,
    seconds: float = SEARCH_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> SearchPage:
    """A page of jobs that match a filter.

    No index has a task's name, so jobs are examined one by one. Each statement examines a bounded number
    of them. The search repeats it until the page is full, the list ends, or the time is up.
    """
    deadline = clock() + seconds
    page = await tx.read(job_pages.page(wanted, limit=limit, after=after))
    found, searched = page.jobs, page.examined
    while page.is_cut_short and clock() < deadline and searched < MAX_SEARCHED_JOBS:
        missing = limit - len(found)
        page = await tx.read(
            job_pages.page(wanted, limit=missing, after=page.next, max_examined=SEARCH_STEP_JOBS)
        )
        found += page.jobs
        searched += page.examined
    return SearchPage(found, page.next, searched, page.last_at if page.is_cut_short else None)
