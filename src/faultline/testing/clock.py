"""Time in tests: `advance` moves all stored times instead of the database's clock."""

from __future__ import annotations

from datetime import timedelta

from faultline.app import Faultline
from faultline.errors import InvalidInput
from faultline.postgres.sessions import Connection, connect
from faultline.testing.databases import require_test_database

_SHIFTED = (
    ("jobs", ("next_run_at", "lease_expires_at", "claimed_at", "created_at", "finished_at")),
    ("waiting_jobs", ("due_at", "resume_at")),  # with next_run_at: their difference must stay
    ("places", ("taken_at",)),
    ("limit_states", ("next_start_at",)),
    ("workers", ("started_at", "last_heartbeat_at", "lost_at")),
    ("attempts_log", ("claimed_at", "ended_at")),
    ("rejections", ("rejected_at",)),
    ("unique_jobs", ("held_until", "changed_at")),
    ("schedules", ("next_fire_at", "decided_until")),
)


def advance(app: Faultline, seconds: float | timedelta) -> None:
    """Move the times of jobs, leases, workers and schedules back by `seconds`.

    Scheduled jobs become due, leases expire, windows of unique keys end, and rates allow the next starts.
    The ledger is immutable and keeps its times. Your own tables and `now()` do not change.
    """
    by = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
    if by < timedelta(0):
        raise InvalidInput("seconds must not be negative: time cannot be moved back")
    with connect(app.database_url, application_name="faultline testing") as conn:
        require_test_database(conn)
        _shift(conn, by)


def _shift(conn: Connection, by: timedelta) -> None:
    with conn.transaction():
        for table, columns in _SHIFTED:
            changes = ", ".join(f"{column} = {column} - %(by)s" for column in columns)
            conn.execute(f"UPDATE faultline.{table} SET {changes}", {"by": by})  # noqa: S608 - constant names
