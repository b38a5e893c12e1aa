"""Problems for an operator: queues, failures, lost workers and schedules."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from faultline.inspector import schedule_documents
from faultline.inspector.worker_view import GONE, WorkerView
from faultline.statements.queues import CountedState, QueueCount
from faultline.statements.schedules import ScheduleProblem
from faultline.statements.statistics import (
    FAILURES_OF_EACH_QUEUE,
    FAILURES_READ,
    FAILURES_SECONDS,
    FailedJob,
)
from faultline.statements.workers import WorkerStatus

SHOWN = 20  # rows of each list

_ERROR_NAME = re.compile(r"[A-Za-z_][\w.]*(?=:|\Z)")


def document(
    counts: Sequence[QueueCount],
    workers: Sequence[WorkerView],
    paused: Collection[str],
    failed: Sequence[FailedJob],
    schedules: Sequence[ScheduleProblem],
) -> dict[str, Any]:
    """The part of the overview that the dashboard shows first.

    Without problems, all lists are empty.
    """
    due = [count for count in counts if count.standing is CountedState.DUE and count.at_least]
    due.sort(key=lambda count: count.oldest_seconds or 0.0, reverse=True)
    served = {
        queue
        for worker in workers
        if worker.status is WorkerStatus.ALIVE
        for queue in worker.queues
    }
    oldest = [{**_due(count), "paused": count.queue in paused} for count in due]
    unserved = [
        _due(count) for count in due if count.queue not in served and count.queue not in paused
    ]
    return {
        "unserved_queues": unserved[:SHOWN],
        "oldest_due": oldest[:SHOWN],
        "failures": grouped(failed)[:SHOWN],
        "failures_seconds": FAILURES_SECONDS,
        "failures_total": len(failed),
        "failures_is_exact": _is_exact(failed),
        "lost_workers": [_gone(worker) for worker in workers if worker.status in GONE][:SHOWN],
        "schedules": [schedule_documents.problem(each) for each in schedules][:SHOWN],
    }


def _due(count: QueueCount) -> dict[str, Any]:
    return {
        "queue": count.queue,
        "due": max(count.at_least, count.estimate or 0),
        "due_is_exact": count.is_exact,
        "oldest_due_seconds": count.oldest_seconds,
    }


def _is_exact(failed: Sequence[FailedJob]) -> bool:
    by_queue: dict[str, int] = {}
    for failure in failed:
        by_queue[failure.queue] = by_queue.get(failure.queue, 0) + 1
    return len(failed) < FAILURES_READ and all(
        number < FAILURES_OF_EACH_QUEUE for number in by_queue.values()
    )


def _gone(worker: WorkerView) -> dict[str, Any]:
    return {
        "id": worker.id,
        "host": worker.host,
        "status": worker.status,
        "last_heartbeat_at": worker.last_heartbeat_at,
        "running": worker.running,
        "queues": worker.queues,
    }


def grouped(failed: Iterable[FailedJob]) -> list[dict[str, Any]]:
    """Failures by task and kind of error, the most frequent first."""
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for failure in failed:  # newest first
        kind = error_kind(failure)
        group = groups.setdefault(
            (failure.task, kind),
            {
                "task": failure.task,
                "error": kind,
                "reason": failure.reason,
                "count": 0,
                "newest_at": failure.failed_at,
                "newest_job_id": failure.job_id,
                "newest_error": (failure.error or "").partition("\n")[0] or None,
                "queues": [],
            },
        )
        group["count"] += 1
        if failure.queue not in group["queues"]:
            group["queues"].append(failure.queue)
    return sorted(groups.values(), key=lambda group: -group["count"])


def error_kind(failure: FailedJob) -> str:
    """The exception's name if the error begins with one, else the reason."""
    name = None if failure.reason == "poison" else _ERROR_NAME.match(failure.error or "")
    return name[0] if name else failure.reason
