"""The registered workers as the inspector shows them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from faultline.inspector.reader import ReadTransaction
from faultline.statements import workers
from faultline.statements.workers import WorkerStatus

GONE = (WorkerStatus.LOST, WorkerStatus.SILENT)


@dataclass(frozen=True, slots=True)
class WorkerView:
    id: str
    host: str
    pid: int
    status: WorkerStatus
    queues: list[str]
    started_at: datetime
    last_heartbeat_at: datetime
    silent_seconds: float
    running: int
    holds_locks: bool
    lost_seconds: float | None
    blocked_seconds: float | None = None  # how long its event loop has been blocked
    blocked_job: UUID | None = None
    blocked_frame: str | None = None
    blocked_stack: str | None = None


async def read_workers(tx: ReadTransaction) -> list[WorkerView]:
    sightings = await tx.read(workers.registry())
    registered = await tx.read(workers.registrations())
    return [
        WorkerView(
            *(seen.id, known.host, known.pid, seen.status, seen.queues),
            *(known.started_at, known.last_heartbeat_at, seen.silent_seconds),
            *(seen.running, seen.holds_locks, known.lost_seconds),
            blocked_seconds=seen.blocked_seconds,
            blocked_job=seen.blocked_job,
            blocked_frame=seen.blocked_frame,
            blocked_stack=seen.blocked_stack,
        )
        for seen in sightings
        if (known := registered.get(seen.id))
    ]
