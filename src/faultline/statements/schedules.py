"""Statements of schedules: declare, operate and list them. See sql/schedules.sql.

Those of the scheduler are in `statements.firing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString, NamedTuple
from uuid import UUID

import orjson

from faultline.payload import decode_stored
from faultline.planned_times import Timing
from faultline.statements.statement import Row, Statement, no_result

Definition = Mapping[str, Any]
MOST_LISTED = 10_000
OVERDUE_SECONDS = 60.0


class Declared(NamedTuple):
    name: str
    outcome: str  # added, changed, unchanged; refused: an operator's schedule has this name


def declare(worker: str, definitions: Sequence[Definition]) -> Statement[list[Declared]]:
    """Make the table agree with the schedules that a worker's code declares."""
    return Statement(
        "SELECT name, outcome FROM faultline.declare_schedules(%s, %s::jsonb)",
        (worker, orjson.dumps([dict(each) for each in definitions]).decode()),
        lambda rows: [Declared(*row) for row in rows],
    )


def add(definition: Definition, *, replace: bool = False) -> Statement[str]:
    """Add an operator's schedule; returns `added`, `changed` or `unchanged`."""
    return Statement(
        "SELECT faultline.add_schedule(%s::jsonb, %s)",
        (orjson.dumps(dict(definition)).decode(), replace),
        lambda rows: str(rows[0][0]),
    )


def pause(name: str, reason: str | None = None) -> Statement[bool]:
    """Stop a schedule from firing; returns whether it was active."""
    return Statement(
        "SELECT faultline.pause_schedule(%s, %s)", (name, reason), lambda rows: bool(rows[0][0])
    )


def resume(name: str) -> Statement[bool]:
    """Let a schedule fire again; returns whether it was paused."""
    return Statement("SELECT faultline.resume_schedule(%s)", (name,), lambda rows: bool(rows[0][0]))


def run_now(name: str) -> Statement[UUID]:
    """Enqueue the schedule's job at once; returns the job's id."""
    return Statement("SELECT faultline.run_schedule(%s)", (name,), lambda rows: rows[0][0])


def remove(name: str) -> Statement[None]:
    return Statement("SELECT faultline.remove_schedule(%s)", (name,), no_result)


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """A schedule's row, and what follows from it at the database's time `read_at`."""

    name: str
    cron: str | None
    every_seconds: int | None
    anchor: datetime  # in effect: `reanchored_at` replaces it
    time_zone: str
    task: str
    queue: str
    payload: Any
    priority: int
    max_attempts: int
    missed: str
    missed_limit: int
    jitter_seconds: float
    declared_by: str  # code or operator
    revision: int
    paused_at: datetime | None
    paused_reason: str | None
    next_fire_at: datetime | None
    last_planned_at: datetime | None
    last_fired_at: datetime | None
    last_job_id: UUID | None
    last_error: str | None
    reanchored_at: datetime | None
    is_undeclared: bool
    read_at: datetime

    @property
    def timing(self) -> Timing:
        return Timing(self.cron, self.every_seconds, self.anchor, self.time_zone)

    @property
    def expression(self) -> str:
        return self.cron or f"every {self.every_seconds} s"

    @property
    def state(self) -> str:
        """`paused`, `failing`, `overdue`, `undeclared`, or `active` if none of them."""
        if self.paused_at is not None:
            return "paused"
        return _state(self.last_error, self.late_seconds, self.is_undeclared)

    @property
    def late_seconds(self) -> float:
        if self.next_fire_at is None:
            return 0.0
        return max(0.0, (self.read_at - self.next_fire_at).total_seconds())

    @property
    def ahead_seconds(self) -> float:
        """How far its last planned time lies in the future: the clock was set back."""
        if self.last_planned_at is None:
            return 0.0
        return max(0.0, (self.last_planned_at - self.read_at).total_seconds())


def _state(last_error: str | None, late_seconds: float, is_undeclared: bool) -> str:
    """The state of a schedule that is not paused."""
    if last_error is not None:
        return "failing"
    if late_seconds > OVERDUE_SECONDS:
        return "overdue"
    return "undeclared" if is_undeclared else "active"


_COLUMNS: LiteralString = """s.name, s.cron, s.every_seconds, coalesce(s.reanchored_at, s.anchor),
    s.time_zone, s.task, s.queue, s.payload::text, s.priority, s.max_attempts, s.missed,
    s.missed_limit, s.jitter_seconds, s.declared_by, s.revision, s.paused_at, s.paused_reason,
    s.next_fire_at, s.last_planned_at,
    (SELECT max(f.fired_at) FROM faultline.schedule_firings AS f
     WHERE f.schedule = s.name AND f.planned_at = s.last_planned_at AND f.outcome = 'fired'),
    s.last_job_id, s.last_error, s.reanchored_at,
    s.name IN (SELECT u FROM faultline.undeclared_schedules() AS u), clock_timestamp()"""


def _record(row: Row) -> ScheduleRecord:
    name, cron, every_seconds, anchor, time_zone, task, queue, payload, *rest = row
    timing = (cron, every_seconds, anchor, time_zone)
    return ScheduleRecord(name, *timing, task, queue, decode_stored(payload), *rest)


def schedules() -> Statement[list[ScheduleRecord]]:
    """All schedules by name."""
    return Statement(
        f"SELECT {_COLUMNS} FROM faultline.schedules AS s ORDER BY s.name LIMIT %s",  # noqa: S608
        (MOST_LISTED,),
        lambda rows: [_record(row) for row in rows],
    )


def find(name: str) -> Statement[ScheduleRecord | None]:
    return Statement(
        f"SELECT {_COLUMNS} FROM faultline.schedules AS s WHERE s.name = %s",  # noqa: S608
        (name,),
        lambda rows: _record(rows[0]) if rows else None,
    )


def names() -> Statement[list[str]]:
    return Statement(
        "SELECT name FROM faultline.schedules ORDER BY name LIMIT %s",
        (MOST_LISTED,),
        lambda rows: [str(name) for (name,) in rows],
    )


@dataclass(frozen=True, slots=True)
class Firing:
    planned_at: datetime
    outcome: str  # fired, skipped, manual
    job_id: UUID | None
    skipped: int
    fired_at: datetime


def firings(name: str, *, limit: int) -> Statement[list[Firing]]:
    """The newest firings of a schedule, latest planned time first."""
    return Statement(
        """
        SELECT planned_at, outcome, job_id, skipped, fired_at FROM faultline.schedule_firings
        WHERE schedule = %s ORDER BY planned_at DESC LIMIT %s
        """,
        (name, limit),
        lambda rows: [Firing(*row) for row in rows],
    )


def undeclared() -> Statement[list[str]]:
    """Schedules of code that no live worker declares."""
    return Statement(
        "SELECT * FROM faultline.undeclared_schedules()",
        (),
        lambda rows: [str(name) for (name,) in rows],
    )


@dataclass(frozen=True, slots=True)
class ScheduleProblem:
    """A schedule that is failing, overdue or undeclared."""

    name: str
    state: str
    late_seconds: float
    last_error: str | None


def problems(*, limit: int) -> Statement[list[ScheduleProblem]]:
    """Failing schedules, then overdue ones, the latest first, then undeclared ones."""
    return Statement(
        """
        SELECT p.name, p.last_error, p.late_seconds, p.is_undeclared
        FROM (SELECT s.name, s.last_error,
                     greatest(0, coalesce(extract(epoch FROM clock_timestamp() - s.next_fire_at), 0))
                         ::double precision AS late_seconds,
                     s.name IN (SELECT u FROM faultline.undeclared_schedules() AS u)
                         AS is_undeclared
              FROM faultline.schedules AS s WHERE s.paused_at IS NULL) AS p
        WHERE p.last_error IS NOT NULL OR p.late_seconds > %s OR p.is_undeclared
        ORDER BY p.last_error IS NULL, p.late_seconds DESC, p.name LIMIT %s
        """,
        (OVERDUE_SECONDS, limit),
        lambda rows: [
            ScheduleProblem(name, _state(error, late, is_undeclared), late, error)
            for name, error, late, is_undeclared in rows
        ],
    )
