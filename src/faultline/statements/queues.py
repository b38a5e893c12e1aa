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
    """The state of a job in the counts; due, waiting and scheduled ones are queued."""

    DUE = "due"
    WAITING = "waiting"  # for a limit
    SCHEDULED = "scheduled"
    RUNNING = "running"
    FAILED = "failed"
    SUCCEEDED = "succeeded"


@dataclass(frozen=True, slots=True)
class QueueCount:
    """How many jobs of a queue are in one state.

    Exact up to a bound: `at_least` so many, and about `estimate` if the table has been analyzed.
    `oldest_seconds` is how long the first of them has been due (a waiting one too), running or failed;
    below zero, how long until the first scheduled one is due.
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


def queues_with_waiting_jobs(*, limit: int = 10_000) -> Statement[list[str]]:
    """The names of queues with queued jobs; jumps from name to name in the index."""
    return Statement(
        """
        WITH RECURSIVE waiting (queue) AS (
            (SELECT j.queue::text FROM faultline.jobs AS j WHERE j.state = 'queued' ORDER BY j.queue LIMIT 1)
            UNION ALL
            SELECT (SELECT j.queue FROM faultline.jobs AS j WHERE j.state = 'queued' AND j.queue > w.queue
                    ORDER BY j.queue LIMIT 1)
            FROM waiting AS w WHERE w.queue IS NOT NULL)
        SELECT queue FROM waiting WHERE queue IS NOT NULL LIMIT %s
        """,
        (limit,),
        lambda rows: [row[0] for row in rows],
    )


def is_used(queue: str) -> Statement[bool]:
    """Whether a queued or failed job is in the queue; decided by indexes.

    `queues` does not list more than 1,000 queues.
    """
    return Statement(
        """
        SELECT EXISTS (SELECT FROM faultline.jobs WHERE state = 'queued' AND queue = %s)
            OR EXISTS (SELECT FROM faultline.jobs WHERE state = 'failed' AND queue = %s)
        """,
        (check_queue_name(queue), queue),
        lambda rows: bool(rows[0][0]),
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
