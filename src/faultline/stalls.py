"""Statements about workers that stand still, and about sessions that keep a lapsed job locked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from faultline.protocol import Statement


def report_blocked(
    worker: str,
    seconds: float | None,
    *,
    job_id: UUID | None = None,
    frame: str | None = None,
    stack: str | None = None,
) -> Statement[None]:
    """The worker's event loop has not turned for so long; None: it turns again."""
    duration = None if seconds is None else timedelta(seconds=seconds)
    return Statement(
        "SELECT faultline.report_blocked(%s, %s, %s, %s, %s)",
        (worker, duration, job_id, frame, stack),
        lambda rows: None,
    )


@dataclass(frozen=True, slots=True)
class Locker:
    """A transaction that locks a job's row: a session's, or a prepared one."""

    pid: int | None
    prepared_as: str | None


def lockers_of(job_id: UUID) -> Statement[list[Locker]]:
    return Statement(
        "SELECT pid, prepared_as FROM faultline.lockers_of(%s)",
        (job_id,),
        lambda rows: [Locker(*row) for row in rows],
    )


@dataclass(frozen=True, slots=True)
class LapsedHolder:
    """A transaction that locks a job whose lease ran out, and what was done about it."""

    job_id: UUID
    worker: str | None  # the last holder of the lease
    pid: int | None
    transaction: str
    prepared_as: str | None
    account: str | None
    application: str | None
    outcome: str  # ended, working, hidden, not_permitted or prepared


def end_lapsed_holders(*, grace_seconds: float, max_jobs: int) -> Statement[list[LapsedHolder]]:
    return Statement(
        "SELECT job_id, worker, pid, holder_xid::text, prepared_as, account, application, outcome"
        " FROM faultline.end_lapsed_holders(%s, %s)",
        (timedelta(seconds=grace_seconds), max_jobs),
        lambda rows: [LapsedHolder(*row) for row in rows],
    )


def end_session(holder: LapsedHolder, *, grace_seconds: float) -> Statement[bool]:
    """With the rights of this account: it may be the holder's own. Under the same conditions."""
    return Statement(
        "SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity AS a"
        " WHERE a.pid = %s AND a.backend_xid = %s::xid AND a.wait_event_type = 'Client'"
        " AND a.state_change < clock_timestamp() - %s",
        (holder.pid, holder.transaction, timedelta(seconds=grace_seconds)),
        lambda rows: bool(rows and rows[0][0]),
    )


def is_visible(holder: LapsedHolder) -> Statement[bool]:
    """Whether this account sees what that session is doing."""
    return Statement(
        "SELECT FROM pg_stat_activity WHERE pid = %s AND state IS NOT NULL",
        (holder.pid,),
        lambda rows: bool(rows),
    )


@dataclass(frozen=True, slots=True)
class LockedJob:
    """A job whose lease ran out and whose row a transaction locks."""

    job_id: UUID
    pid: int | None
    prepared_as: str | None
    account: str | None
    application: str | None


def locked_lapsed_jobs(*, older_than_seconds: float, limit: int = 10) -> Statement[list[LockedJob]]:
    return Statement(
        "SELECT j.id, l.pid, l.prepared_as, a.usename::text, a.application_name FROM ("
        "  SELECT id FROM faultline.jobs WHERE state = 'running'"
        "  AND lease_expires_at < statement_timestamp() - %s ORDER BY lease_expires_at LIMIT %s) AS j"
        " CROSS JOIN LATERAL faultline.lockers_of(j.id) AS l"
        " LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid",
        (timedelta(seconds=older_than_seconds), limit),
        lambda rows: [LockedJob(*row) for row in rows],
    )
