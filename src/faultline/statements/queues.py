"""Statements about queues: counts up to a bound, pause and resume.

The counts come from indexes; no statement reads the whole table.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from faultline.payload import check_queue_name
from faultline.statements.statement import Statement

EXACT_UP_TO = 10_000


class CountedState(StrEnum):
    """The state of a job in the counts. Due and scheduled jobs are both queued."""

    DUE = "due"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    FAILED = "failed"
    SUCCEEDED = "succeeded"


@dataclass(frozen=True, slots=True)
class QueueCount:
    """How many jobs of a queue are in one state.

    Exact up to a bound: `at_least` so many, and about `estimate` if the table has been analyzed.
    `oldest_seconds` is how long the first of them has been due, running or failed; below zero, how long
    until the first scheduled one is due.
    """

    queue: str
    standing: CountedState
    at_least: int
    is_exact: bool
    estimate: int | None
    oldest_seconds: float | None


def queues(*, exact_up_to: int = EXACT_UP_TO) -> Statement[list[QueueCount]]:
    """The counts of all queues by name, each with all states in their order."""
    return Statement(
        """
        SELECT queue, standing, at_least, is_exact, estimate,
            extract(epoch FROM clock_timestamp() - since)::float8 FROM faultline.queues(%s)
        """,
        (exact_up_to,),
        lambda rows: [QueueCount(row[0], CountedState(row[1]), *row[2:]) for row in rows],
    )


@dataclass(frozen=True, slots=True)
class PausedQueue:
    queue: str
    reason: str | None
    paused_at: datetime


def paused() -> Statement[list[PausedQueue]]:
    return Statement(
        "SELECT queue, reason, paused_at FROM faultline.paused_queues ORDER BY queue",
        (),
        lambda rows: [PausedQueue(*row) for row in rows],
    )


def pause(queue: str, reason: str | None = None) -> Statement[bool]:
    """Pause a queue: no job of it is claimed. Returns whether it was running.

    Jobs can still be enqueued, and running jobs are finished.
    """
    return Statement(
        "SELECT faultline.pause_queue(%s, %s)",
        (check_queue_name(queue), reason),
        lambda rows: bool(rows[0][0]),
    )


def resume(queue: str) -> Statement[bool]:
    """Resume a queue; returns whether it was paused."""
    return Statement(
        "SELECT faultline.resume_queue(%s)",
        (check_queue_name(queue),),
        lambda rows: bool(rows[0][0]),
    )
