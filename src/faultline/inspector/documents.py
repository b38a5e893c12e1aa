"""The inspector's JSON documents about jobs, queues and leases."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Any, TypeVar, cast
from uuid import UUID

import orjson

from faultline import timeline
from faultline.errors import UnknownJob, UnknownLimit
from faultline.explanation import Situation, explain, situation_of
from faultline.inspector import risk
from faultline.inspector.reader import ReadTransaction
from faultline.inspector.worker_view import GONE
from faultline.statements import audit, job_pages, jobs, leases, limit_keys, limits, queues, workers
from faultline.statements.audit import AuditFilter
from faultline.statements.job_filter import JobFilter
from faultline.statements.jobs import JobRow, LedgerEntry, Rejection
from faultline.statements.leases import LeaseRow
from faultline.statements.queues import CountedState, PausedQueue, QueueCount
from faultline.statements.statement import Reads

T = TypeVar("T")

SEARCH_SECONDS = 2.0
MAX_SEARCHED_JOBS = 1_000_000
SEARCH_STEP_JOBS = 20_000  # examined by each statement after the first

# ── one job ──────────────────────────────────────────────────────────────────────────────────────


async def job(tx: ReadTransaction, job_id: UUID, *, hides_details: bool) -> dict[str, Any]:
    found = await tx.read(jobs.details_of(job_id))
    situation = await _read(tx, situation_of(job_id))
    if found is None or situation is None:
        raise await _unknown(tx, job_id)
    return {
        **asdict(found),
        "payload": _exact(found.payload_text),
        "result": _exact(found.result_text),
        "why": _why(situation, hides_details=hides_details),
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


def _why(situation: Situation, *, hides_details: bool) -> dict[str, Any]:
    """The answer of `faultline why`.

    With `hides_details` it names no account and no query.
    """
    if hides_details:
        nameless = [replace(holder, account=None, query=None) for holder in situation.holders]
        situation = replace(situation, holders=nameless)
    return asdict(explain(situation))


async def _read(tx: ReadTransaction, reads: Reads[T]) -> T:
    """Run the statements that a generator yields, and return what it returns."""
    try:
        statement = next(reads)
        while True:
            statement = reads.send(await tx.read(statement))
    except StopIteration as end:
        return cast("T", end.value)


# ── its timeline ─────────────────────────────────────────────────────────────────────────────────


async def job_timeline(tx: ReadTransaction, job_id: UUID) -> dict[str, Any]:
    history = await _read(tx, timeline.history_of(job_id, limit=timeline.LONGEST))
    if history is None:
        raise await _unknown(tx, job_id)
    return {
        "job_id": job_id,
        "state": history.job.state,
        "created_at": history.job.created_at,
        "now": history.job.now,
        "attempts": timeline.attempts(history),
        "rejections": [_rejection(each) for each in history.rejections],
        "ledger": _ledger(history.entry),
        "events": timeline.events(history),
        "is_complete": max(len(history.logged), len(history.rejections)) < timeline.LONGEST,
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


# ── leases and queues ────────────────────────────────────────────────────────────────────────────


async def lease_page(tx: ReadTransaction, *, limit: int, after: str | None) -> dict[str, Any]:
    page = await tx.read(leases.page(limit=limit, after=after))
    registered = await tx.read(workers.registry()) if page.leases else []
    gone = {worker.id for worker in registered if worker.status in GONE}
    return {"leases": [_lease(row, row.owner in gone) for row in page.leases], "next": page.next}


def _lease(row: LeaseRow, owner_is_gone: bool) -> dict[str, Any]:
    share = row.remaining_share
    level = risk.of_lease(share, owner_is_gone=owner_is_gone)
    return {**asdict(row), "remaining_share": share, "risk": level}


async def limit(tx: ReadTransaction, name: str, *, hides_details: bool) -> dict[str, Any]:
    """One limit, its tasks, its fullest keys, and who last changed it."""
    use = next((use for use in await tx.read(limits.uses()) if use.name == name), None)
    if use is None:
        raise UnknownLimit(f"there is no limit {name!r}", hint="faultline limits list")
    changes = await tx.read(audit.page(AuditFilter(object=f"limit {name}", result="done"), limit=1))
    shown = (changes.without_roles() if hides_details else changes).audit
    return {
        **limits.as_facts(use),
        "arguments": await tx.read(limit_keys.bound_arguments(name)),
        "keys": await tx.read(limit_keys.fullest_keys(name)),
        "last_change": shown[0] if shown else None,
    }


async def queue_counts(tx: ReadTransaction) -> dict[str, Any]:
    counts = await tx.read(queues.queues())
    paused = {each.queue: each for each in await tx.read(queues.paused())}
    named = {queue: list(group) for queue, group in groupby(counts, key=lambda count: count.queue)}
    return {
        "queues": [
            _queue(queue, named.get(queue, ()), paused.get(queue))
            for queue in sorted({*named, *paused})
        ]
    }


def _queue(queue: str, counts: Sequence[QueueCount], paused: PausedQueue | None) -> dict[str, Any]:
    by_standing = {count.standing: count for count in counts}
    due = by_standing.get(CountedState.DUE)
    counted = [count for count in counts if count.standing is not CountedState.SUCCEEDED]
    return {
        "queue": queue,
        "paused": paused is not None,
        "paused_reason": paused.reason if paused else None,
        "paused_at": paused.paused_at if paused else None,
        **{standing.value: _number(by_standing.get(standing)) for standing in CountedState},
        "is_exact": all(count.is_exact for count in counted),
        "succeeded_is_exact": by_standing[CountedState.SUCCEEDED].is_exact if counts else True,
        "oldest_due_seconds": due.oldest_seconds if due else None,
    }


def _number(count: QueueCount | None) -> int | None:
    """The count, or the estimate if counting stopped; None: neither is known."""
    if count is None:
        return 0
    if count.is_exact:
        return count.at_least
    if count.estimate is None:
        return count.at_least or None
    return max(count.at_least, count.estimate)
