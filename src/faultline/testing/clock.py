"""Time in tests is data: instead of moving a clock, everything that waits for a time is moved."""

from __future__ import annotations

from datetime import timedelta

from faultline.app import Faultline
from faultline.errors import InvalidInput
from faultline.postgres.sessions import Connection, connect
from faultline.testing.databases import require_test_database

_SHIFTED = (
    ("jobs", ("next_run_at", "lease_expires_at", "claimed_at", "created_at", "finished_at")),
    ("workers", ("started_at", "last_heartbeat_at", "lost_at")),
    ("attempts_log", ("claimed_at", "ended_at")),
    ("rejections", ("rejected_at",)),
)


def advance(app: Faultline, seconds: float | timedelta) -> None:
    """Let `seconds` pass, as far as the jobs in the test's database can tell.

    What was queued for later comes nearer, and leases run out. The ledger keeps its times, because it
    is never changed; so do your own tables and `now()`.
    """
    by = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
    if by < timedelta(0):
        raise InvalidInput("time goes forward: seconds is not negative")
    with connect(app.database_url, application_name="faultline testing") as conn:
        require_test_database(conn)
        _shift(conn, by)


def _shift(conn: Connection, by: timedelta) -> None:
    with conn.transaction():
        for table, columns in _SHIFTED:
            changes = ", ".join(f"{column} = {column} - %(by)s" for column in columns)
            conn.execute(f"UPDATE faultline.{table} SET {changes}", {"by": by})  # noqa: S608 - our own names
