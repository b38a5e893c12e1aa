"""Statements about transactions that lock the row of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from faultline.statements.statement import Reads, Statement, result_of


@dataclass(frozen=True, slots=True)
class Locker:
    """A transaction that locks a job's row: of a session, or prepared."""

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
        """
        SELECT job_id, worker, pid, holder_xid::text, prepared_as, account, application, outcome
        FROM faultline.end_lapsed_holders(%s, %s)
        """,
        (timedelta(seconds=grace_seconds), max_jobs),
        lambda rows: [LapsedHolder(*row) for row in rows],
    )


def end_session(holder: LapsedHolder, *, grace_seconds: float) -> Statement[bool]:
    """End a session with this account's rights, under the same conditions."""
    return Statement(
        """
        SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity AS a
        WHERE a.pid = %s AND a.backend_xid = %s::xid AND a.wait_event_type = 'Client'
          AND a.state_change < clock_timestamp() - %s
        """,
        (holder.pid, holder.transaction, timedelta(seconds=grace_seconds)),
        lambda rows: bool(rows and rows[0][0]),
    )


def is_visible(holder: LapsedHolder) -> Statement[bool]:
    """Whether this account can see what that session does."""
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
        """
        SELECT j.id, l.pid, l.prepared_as, a.usename::text, a.application_name FROM (
            SELECT id FROM faultline.jobs WHERE state = 'running'
            AND lease_expires_at < statement_timestamp() - %s ORDER BY lease_expires_at LIMIT %s) AS j
        CROSS JOIN LATERAL faultline.lockers_of(j.id) AS l
        LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
        """,
        (timedelta(seconds=older_than_seconds), limit),
        lambda rows: [LockedJob(*row) for row in rows],
    )


@dataclass(frozen=True, slots=True)
class LockHolder:
    """A transaction in progress: of a session, or prepared."""

    pid: int | None
    application: str | None
    account: str | None
    state: str | None
    seconds: float | None
    query: str | None
    prepared_as: str | None


def may_probe() -> Statement[bool]:
    """Whether this session may lock a row: it needs a primary and the right to write."""
    return Statement(
        """
        SELECT current_setting('transaction_read_only') = 'off'
          AND has_table_privilege('faultline.jobs', 'UPDATE')
        """,
        (),
        lambda rows: bool(rows[0][0]),
    )


def probe_lock(job_id: UUID) -> Statement[bool]:
    """Whether a claim would skip this row.

    It locks the row if it can: send it last, and end the transaction at once.
    """
    return Statement(
        "SELECT FROM faultline.jobs WHERE id = %s FOR UPDATE SKIP LOCKED",
        (job_id,),
        lambda rows: not rows,
    )


def last_locker(job_id: UUID) -> Statement[str | None]:
    """The transaction, or the multixact, that last locked or changed the row."""
    return Statement(
        "SELECT xmax::text FROM faultline.jobs WHERE id = %s AND xmax <> '0'::xid",
        (job_id,),
        lambda rows: rows[0][0] if rows else None,
    )


def lockers_behind(number: str) -> Statement[list[str]]:
    """The transactions of a multixact; none if the number is not in use as one.

    PostgreSQL raises an error for a number outside the range in use, so that range is checked first.
    """
    return Statement(
        """
        SELECT m.xid::text FROM (VALUES (%s::xid)) AS last (locker)
        CROSS JOIN LATERAL pg_get_multixact_members(CASE WHEN mxid_age(last.locker) BETWEEN 1 AND (
            SELECT mxid_age(datminmxid) FROM pg_database WHERE datname = current_database())
            THEN last.locker END) AS m
        """,
        (number,),
        lambda rows: [row[0] for row in rows],
    )


def holders_of(job_id: UUID) -> Reads[list[LockHolder]]:
    """Read which transactions lock a job's row, so that it cannot be claimed.

    A session that may write tries the lock first. A read-only session has only the row's xmax, which
    may be the number of a transaction that ended. The lock is held until the caller's transaction ends,
    so these are its last statements.
    """
    if (yield from result_of(may_probe())) and not (yield from result_of(probe_lock(job_id))):
        return []
    locker = yield from result_of(last_locker(job_id))
    if locker is None:
        return []
    if found := (yield from result_of(holders([locker]))):
        return found
    return (yield from result_of(holders((yield from result_of(lockers_behind(locker))))))


def holders(transactions: Sequence[str]) -> Statement[list[LockHolder]]:
    """The transactions among these that are in progress and lock the jobs table."""
    return Statement(
        """
        SELECT x.pid, a.application_name, coalesce(a.usename, p.owner), a.state,
            extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared))::float8,
            left(a.query, 200), p.gid
        FROM pg_locks AS x LEFT JOIN pg_stat_activity AS a ON a.pid = x.pid
        LEFT JOIN pg_prepared_xacts AS p ON p.transaction = x.transactionid
        WHERE x.locktype = 'transactionid' AND x.mode = 'ExclusiveLock' AND x.granted
          AND x.transactionid = ANY (%s::text[]::xid[]) AND x.pid IS DISTINCT FROM pg_backend_pid()
          AND EXISTS (SELECT FROM pg_locks AS t WHERE t.relation = 'faultline.jobs'::regclass
            AND t.virtualtransaction = x.virtualtransaction AND t.granted)
        """,
        (list(transactions),),
        lambda rows: [LockHolder(*row) for row in rows],
    )
