"""Logs the jobs that a claim failed, because no claim can ever take them."""

from __future__ import annotations

import orjson

from faultline.events import Event, emit
from faultline.postgres.driver import AsyncConnection, Diagnostic

# The SQLSTATE of the notice that faultline.select_claimable raises (claiming.sql).
_SQLSTATE = "01FL1"


def log_unclaimable_jobs(conn: AsyncConnection) -> None:
    """Log each of them as dead when a claim on this connection has failed it.

    The claim does not return these jobs, and its transaction fails them once. PostgreSQL sends the notice
    shortly before the commit.
    """
    conn.add_notice_handler(_log)


def _log(notice: Diagnostic) -> None:
    if notice.sqlstate != _SQLSTATE:
        return
    for job in orjson.loads(notice.message_detail or "[]"):
        emit(
            Event.JOB_DEAD,
            job_id=job["job_id"],
            token=job["token"],
            task=job["task"],
            attempt=job["attempt"],
            reason=job["reason"],
        )
