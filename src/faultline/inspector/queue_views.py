"""What the inspector answers about queues and leases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from faultline.inspector import risk
from faultline.inspector.reader import ReadTransaction
from faultline.inspector.worker_view import GONE
from faultline.statements import leases, queues, workers
from faultline.statements.leases import LeaseRow
from faultline.statements.queues import PausedQueue, QueueCount, Standing


async def lease_page(tx: ReadTransaction, *, limit: int, after: str | None) -> dict[str, Any]:
    page = await tx.read(leases.page(limit=limit, after=after))
    registered = await tx.read(workers.registry()) if page.leases else []
    gone = {worker.id for worker in registered if worker.status in GONE}
    return {"leases": [_lease(row, row.owner in gone) for row in page.leases], "next": page.next}


def _lease(row: LeaseRow, owner_is_gone: bool) -> dict[str, Any]:
    share = row.remaining_share
    level = risk.of_lease(share, owner_is_gone=owner_is_gone)
    return {**asdict(row), "remaining_share": share, "risk": level}


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
    """The count, or the estimate if counting stopped; None: neither is known."""
    if count is None:
        return 0
    if count.is_exact:
        return count.at_least
    if count.estimate is None:
        return count.at_least or None
    return max(count.at_least, count.estimate)
