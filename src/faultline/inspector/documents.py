"""What the endpoints answer: the values of a look, in the shape that clients read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any
from uuid import UUID

from faultline.errors import UnknownJob
from faultline.inspector import job_details, leases, risk, timeline, why
from faultline.inspector.leases import LeaseRow
from faultline.inspector.reader import Look
from faultline.statements import jobs, queues, workers
from faultline.statements.jobs import LedgerEntry, Rejection
from faultline.statements.queues import PausedQueue, QueueCount, Standing
from faultline.statements.workers import WorkerStatus

_GONE = (WorkerStatus.LOST, WorkerStatus.SILENT)


async def lease_page(look: Look, *, limit: int, after: str | None) -> dict[str, Any]:
    page = await look.read(leases.page(limit=limit, after=after))
    registered = await look.read(workers.registry()) if page.leases else []
    gone = {worker.id for worker in registered if worker.status in _GONE}
    return {"leases": [_lease(row, row.owner in gone) for row in page.leases], "next": page.next}


def _lease(row: LeaseRow, owner_is_gone: bool) -> dict[str, Any]:
    share = row.remaining_share
    level = risk.of_lease(share, owner_is_gone=owner_is_gone)
    return {**asdict(row), "remaining_share": share, "risk": level}


async def queue_counts(look: Look) -> dict[str, Any]:
    counts = await look.read(queues.queues())
    paused = {each.queue: each for each in await look.read(queues.paused())}
    named = {queue: list(group) for queue, group in groupby(counts, key=lambda count: count.queue)}
    return {
        "queues": [
            _queue(queue, named.get(queue, ()), paused.get(queue))
            for queue in sorted({*named, *paused})
        ]
    }


def _queue(queue: str, counts: Sequence[QueueCount], paused: PausedQueue | None) -> dict[str, Any]:
    by_standing = {count.standing: count for count in counts}
    due = by_standing.get(Standing.DUE)
    counted = [count for count in counts if count.standing is not Standing.SUCCEEDED]
    return {
        "queue": queue,
        "paused": paused is not None,
        "paused_reason": paused.reason if paused else None,
        "paused_at": paused.paused_at if paused else None,
        **{standing.value: _number(by_standing.get(standing)) for standing in Standing},
        "is_exact": all(count.is_exact for count in counted),
        "succeeded_is_exact": by_standing[Standing.SUCCEEDED].is_exact if counts else True,
        "oldest_due_seconds": due.oldest_seconds if due else None,
    }


def _number(count: QueueCount | None) -> int | None:
    """Counted, or estimated where it was not counted to its end; None: neither is known."""
    if count is None:
        return 0
    if count.is_exact:
        return count.at_least
    if count.estimate is None:
        return count.at_least or None
    return max(count.at_least, count.estimate)


async def job(look: Look, job_id: UUID, *, is_discreet: bool) -> dict[str, Any]:
    found = await look.read(job_details.details(job_id))
    if found is None:
        raise await _unknown(look, job_id)
    return {**found.document(), "why": await why.document(look, found, is_discreet=is_discreet)}


async def job_timeline(look: Look, job_id: UUID) -> dict[str, Any]:
    standing = await look.read(timeline.standing_of(job_id))
    if standing is None:
        raise await _unknown(look, job_id)
    logged = await look.read(timeline.bounded(jobs.attempts_of(job_id)))
    entry = await look.read(jobs.ledger_entry_of(job_id))
    refused = await look.read(timeline.bounded(jobs.rejections_of(job_id)))
    spans = timeline.attempts(standing, logged, entry)
    return {
        "job_id": job_id,
        "state": standing.state,
        "created_at": standing.created_at,
        "now": standing.now,
        "attempts": spans,
        "rejections": [_rejection(each) for each in refused],
        "ledger": _ledger(entry),
        "events": timeline.story(standing, spans, logged, refused, entry),
        "is_complete": max(len(logged), len(refused)) < timeline.LONGEST,
    }


def _rejection(rejection: Rejection) -> dict[str, Any]:
    shown = asdict(rejection)
    return {**shown, "overlap_seconds": shown.pop("overlap").total_seconds()}


def _ledger(entry: LedgerEntry | None) -> dict[str, Any] | None:
    if entry is None:
        return None
    return {
        "token": entry.fencing_token,
        "worker": entry.worker,
        "committed_at": entry.committed_at,
    }


async def _unknown(look: Look, job_id: UUID) -> UnknownJob:
    entry = await look.read(jobs.ledger_entry_of(job_id))
    if entry is None:
        return UnknownJob(f"there is no job {job_id}", hint="retention may have removed it")
    return UnknownJob(
        f"there is no job {job_id} any more: retention has removed it",
        hint=f"it took effect at {entry.committed_at.isoformat()}, by {entry.worker}",
    )
