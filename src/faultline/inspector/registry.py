"""The registered workers with what each of them is, as values in the style of protocol.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from faultline.statements.statement import Statement
from faultline.statements.workers import WorkerSighting, WorkerStatus

MAX_WORKERS = 5_000


@dataclass(frozen=True, slots=True)
class Registration:
    host: str
    pid: int
    started_at: datetime
    last_heartbeat_at: datetime
    lost_seconds: float | None  # since it was found to be lost and nothing of it was left


def registrations() -> Statement[dict[str, Registration]]:
    return Statement(
        "SELECT id, host, pid, started_at, last_heartbeat_at,"
        " extract(epoch FROM clock_timestamp() - lost_at)::float8"
        " FROM faultline.workers ORDER BY id LIMIT %s",
        (MAX_WORKERS,),
        lambda rows: {row[0]: Registration(*row[1:]) for row in rows},
    )


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
    blocked_seconds: float | None = None  # for how long its event loop has not turned
    blocked_job: UUID | None = None
    blocked_frame: str | None = None
    blocked_stack: str | None = None


def views(
    sightings: Sequence[WorkerSighting], registered: Mapping[str, Registration]
) -> list[WorkerView]:
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
