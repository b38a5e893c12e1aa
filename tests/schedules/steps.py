"""Schedules by public SQL, and changes of their stored times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from faultline.postgres.sessions import run
from faultline.statements import firing
from faultline.statements.firing import DueSchedule, DueSchedules

Connection = psycopg.Connection[Any]


def add(conn: Connection, name: str = "report", **fields: Any) -> str:
    """Add an operator's schedule: every minute, unless told otherwise."""
    given = {"name": name, "task": "t", **fields}
    if "cron" not in given:
        given.setdefault("every_seconds", 60)
    return str(one(conn, "SELECT faultline.add_schedule(%s, true)", Jsonb(given)))


def set_schedule(conn: Connection, name: str, assignment: str) -> None:
    """Change stored times instead of waiting."""
    conn.execute(f"UPDATE faultline.schedules SET {assignment} WHERE name = %s".encode(), [name])


def make_due(conn: Connection, name: str = "report", *, minutes_ago: int = 0) -> datetime:
    """Make it due since a whole minute, this one or an earlier one; returns that time."""
    due = f"date_trunc('minute', clock_timestamp()) - interval '{minutes_ago} minutes'"
    set_schedule(conn, name, f"next_fire_at = {due}, decided_until = {due} - interval '1 second'")
    at: datetime = one(conn, "SELECT next_fire_at FROM faultline.schedules WHERE name = %s", name)
    return at.astimezone(UTC)


class Answer(NamedTuple):
    times: list[datetime]
    job_ids: list[UUID]


def fire(
    conn: Connection,
    expected: datetime | None,
    planned: list[datetime] | None = None,
    *,
    name: str = "report",
    revision: int = 1,
    following: datetime | None = None,
    skipped: int = 0,
    newest_skipped: datetime | None = None,
) -> Answer | None:
    """Fire as a scheduler does; None: it was not done."""
    times = [expected] if planned is None else planned
    newest = max([each for each in [*times, newest_skipped] if each], default=datetime.now(UTC))
    row = conn.execute(
        "SELECT fired_times, job_ids FROM faultline.fire_schedule(%s, %s, %s, %s, %s, %s, %s)",
        [
            name,
            revision,
            expected,
            times,
            following or newest + timedelta(minutes=1),
            skipped,
            newest_skipped,
        ],
    ).fetchone()
    return None if row is None else Answer([each.astimezone(UTC) for each in row[0]], row[1])


def due(conn: Connection) -> DueSchedules:
    return run(conn, firing.due_schedules(limit=100))


def only_due(conn: Connection) -> DueSchedule:
    [found] = due(conn).due
    return found


def jobs(conn: Connection) -> list[tuple[Any, ...]]:
    return conn.execute(
        "SELECT idempotency_key, scheduled_for FROM faultline.jobs ORDER BY scheduled_for"
    ).fetchall()


def one(conn: Connection, query: str, *params: Any) -> Any:
    row = conn.execute(query.encode(), params).fetchone()
    assert row is not None
    return row[0]


def field(conn: Connection, column: str, name: str = "report") -> Any:
    return one(conn, f"SELECT {column} FROM faultline.schedules WHERE name = %s", name)
