"""Reads that only diagnosis needs, as values in the style of protocol.py. Nothing here writes.

They work for an account that may only look: a view that it may not see in full has gaps, not errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from faultline.protocol import LEADER_KEY, LOCK_CLASS, Statement

# A worker that has not been heard of for this long, or for its longest lease, no longer counts as alive.
SILENCE_SECONDS = 60.0
COUNT_LIMIT = 10_000  # enough to know that it is many


def clock() -> Statement[datetime]:
    return Statement("SELECT clock_timestamp()", (), lambda rows: rows[0][0])


@dataclass(frozen=True, slots=True)
class JobText:
    """The JSON of a job exactly as PostgreSQL stores it: parsing would round large numbers."""

    payload: str
    result: str | None


def texts_of(job_ids: Sequence[UUID]) -> Statement[dict[UUID, JobText]]:
    return Statement(
        "SELECT j.id, j.payload::text, l.result::text FROM faultline.jobs AS j"
        " LEFT JOIN faultline.ledger AS l ON l.job_id = j.id WHERE j.id = ANY (%s)",
        (list(job_ids),),
        lambda rows: {row[0]: JobText(*row[1:]) for row in rows},
    )


# ── the history of a job ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class LoggedAttempt:
    attempt: int
    fencing_token: int
    worker: str | None
    outcome: str
    error: str | None
    claimed_at: datetime | None
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    fencing_token: int
    worker: str | None
    committed_at: datetime


@dataclass(frozen=True, slots=True)
class Rejection:
    worker: str
    stale_token: int
    current_token: int | None
    reason: str
    overlap: timedelta
    rejected_at: datetime


def attempts_of(job_id: UUID) -> Statement[list[LoggedAttempt]]:
    return Statement(
        "SELECT attempt, fencing_token, worker, outcome, error, claimed_at, ended_at"
        " FROM faultline.attempts_log WHERE job_id = %s ORDER BY id",
        (job_id,),
        lambda rows: [LoggedAttempt(*row) for row in rows],
    )


def ledger_entry_of(job_id: UUID) -> Statement[LedgerEntry | None]:
    return Statement(
        "SELECT fencing_token, worker, committed_at FROM faultline.ledger WHERE job_id = %s",
        (job_id,),
        lambda rows: LedgerEntry(*rows[0]) if rows else None,
    )


def rejections_of(job_id: UUID) -> Statement[list[Rejection]]:
    return Statement(
        "SELECT worker, stale_token, current_token, reason, overlap, rejected_at"
        " FROM faultline.rejections WHERE job_id = %s ORDER BY id",
        (job_id,),
        lambda rows: [Rejection(*row) for row in rows],
    )


# ── who could run it ─────────────────────────────────────────────────────────────────────────────


class WorkerStatus(StrEnum):
    ALIVE = "alive"
    DRAINING = "draining"  # finishes what it has, and takes nothing new
    SILENT = "silent"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class WorkerSighting:
    id: str
    status: WorkerStatus
    queues: list[str]
    holds_locks: bool
    silent_seconds: float
    running: int
    blocked_seconds: float | None = None  # for how long its event loop has not turned
    blocked_job: UUID | None = None  # whose handler blocks the loop, if it is known
    blocked_frame: str | None = None
    blocked_stack: str | None = None


def workers() -> Statement[list[WorkerSighting]]:
    """Every registered worker. Lost is what faultline.vanished_workers() says, asked without calling
    it: that function is for workers alone."""
    return Statement(
        "WITH held AS (SELECT lease_owner, count(*) AS jobs, max(lease_seconds) AS longest_lease"
        "  FROM faultline.jobs WHERE state = 'running' GROUP BY lease_owner)"
        " SELECT w.id, CASE WHEN w.lost_at IS NOT NULL OR (w.holds_locks"
        "   AND w.server_started_at = pg_postmaster_start_time() AND w.lock_key::oid NOT IN ("
        "     SELECT l.objid FROM pg_locks AS l WHERE l.locktype = 'advisory' AND l.granted"
        "     AND l.classid = %s AND l.objsubid = 2 AND l.database = (SELECT d.oid"
        "       FROM pg_database AS d WHERE d.datname = current_database()))) THEN 'lost'"
        "  WHEN seen.seconds_ago > greatest(%s, h.longest_lease) THEN 'silent'"
        "  WHEN w.draining THEN 'draining' ELSE 'alive' END,"
        " w.queues, w.holds_locks, seen.seconds_ago, coalesce(h.jobs, 0),"
        " extract(epoch FROM clock_timestamp() - w.blocked_since)::float8, w.blocked_job,"
        " w.blocked_frame, w.blocked_stack"
        " FROM faultline.workers AS w LEFT JOIN held AS h ON h.lease_owner = w.id"
        " CROSS JOIN LATERAL (SELECT"
        "  extract(epoch FROM clock_timestamp() - w.last_heartbeat_at)::float8) AS seen (seconds_ago)"
        " ORDER BY w.id",
        (LOCK_CLASS, SILENCE_SECONDS),
        lambda rows: [WorkerSighting(row[0], WorkerStatus(row[1]), *row[2:]) for row in rows],
    )


def is_led() -> Statement[bool]:
    """Whether a reconciler leads in this database; one behind a pooler cannot be seen this way."""
    return Statement(
        "SELECT EXISTS (SELECT FROM pg_locks AS l WHERE l.locktype = 'advisory' AND l.granted"
        " AND l.classid = %s AND l.objid = %s AND l.objsubid = 2 AND l.database ="
        " (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))",
        (LOCK_CLASS, LEADER_KEY),
        lambda rows: bool(rows[0][0]),
    )


def jobs_ahead(job_id: UUID, other_queues: Sequence[str]) -> Statement[tuple[int, int]]:
    """How many due jobs a claim prefers to this one: in its own queue, and among `other_queues`."""
    return Statement(
        "SELECT (SELECT count(*) FROM (SELECT FROM faultline.jobs AS o WHERE o.state = 'queued'"
        "  AND o.queue = j.queue AND o.next_run_at <= clock_timestamp()"
        "  AND (o.priority, o.next_run_at, o.id) < (j.priority, j.next_run_at, j.id)"
        "  LIMIT %s) AS own),"
        " (SELECT count(*) FROM (SELECT FROM faultline.jobs AS o WHERE o.state = 'queued'"
        "  AND o.queue = ANY (%s::text[]) AND o.queue <> j.queue"
        "  AND o.next_run_at <= clock_timestamp() AND o.priority < j.priority"
        "  LIMIT %s) AS others)"
        " FROM faultline.jobs AS j WHERE j.id = %s",
        (COUNT_LIMIT, list(other_queues), COUNT_LIMIT, job_id),
        lambda rows: (int(rows[0][0]), int(rows[0][1])) if rows else (0, 0),
    )


# ── who holds its row ────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class LockHolder:
    """A transaction in progress: of a session, or prepared and left to whoever will end it."""

    pid: int | None
    application: str | None
    account: str | None
    state: str | None
    seconds: float | None
    query: str | None
    prepared_as: str | None


def may_probe() -> Statement[bool]:
    """Whether this session may lock a row, which takes a primary and the right to write."""
    return Statement(
        "SELECT current_setting('transaction_read_only') = 'off'"
        " AND has_table_privilege('faultline.jobs', 'UPDATE')",
        (),
        lambda rows: bool(rows[0][0]),
    )


def probe_lock(job_id: UUID) -> Statement[bool]:
    """Whether a claim would skip this row. Takes the lock if it can: roll back at once."""
    return Statement(
        "SELECT FROM faultline.jobs WHERE id = %s FOR UPDATE SKIP LOCKED",
        (job_id,),
        lambda rows: not rows,
    )


def last_locker(job_id: UUID) -> Statement[str | None]:
    """The transaction that last locked or changed the row, or a number that stands for several."""
    return Statement(
        "SELECT xmax::text FROM faultline.jobs WHERE id = %s AND xmax <> '0'::xid",
        (job_id,),
        lambda rows: rows[0][0] if rows else None,
    )


def lockers_behind(multixact: str) -> Statement[list[str]]:
    """The transactions that one number stands for. Raises when it stands for none."""
    return Statement(
        "SELECT xid::text FROM pg_get_multixact_members(%s::xid)",
        (multixact,),
        lambda rows: [row[0] for row in rows],
    )


def holders(transactions: Sequence[str]) -> Statement[list[LockHolder]]:
    """Those of these transactions that are still under way, and hold a lock on our table."""
    return Statement(
        "SELECT x.pid, a.application_name, coalesce(a.usename, p.owner), a.state,"
        " extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared))::float8,"
        " left(a.query, 200), p.gid"
        " FROM pg_locks AS x LEFT JOIN pg_stat_activity AS a ON a.pid = x.pid"
        " LEFT JOIN pg_prepared_xacts AS p ON p.transaction = x.transactionid"
        " WHERE x.locktype = 'transactionid' AND x.mode = 'ExclusiveLock' AND x.granted"
        " AND x.transactionid = ANY (%s::text[]::xid[]) AND x.pid IS DISTINCT FROM pg_backend_pid()"
        " AND EXISTS (SELECT FROM pg_locks AS t WHERE t.relation = 'faultline.jobs'::regclass"
        "  AND t.virtualtransaction = x.virtualtransaction AND t.granted)",
        (list(transactions),),
        lambda rows: [LockHolder(*row) for row in rows],
    )
