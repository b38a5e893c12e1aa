"""Statements of the worker registry: registration, locks, drain, liveness."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from faultline.statements.statement import Statement, no_result

LOCK_CLASS = 1717663084  # "faul" in ASCII: the advisory locks of workers are (LOCK_CLASS, lock_key)


MAX_REGISTRATIONS = 5_000  # rows that `registrations` reads


@dataclass(frozen=True, slots=True)
class Survey:
    """What the leading reconciler reads several times a second."""

    registered: int  # workers that are not marked lost
    vanished: list[str]  # registered workers whose sessions have all ended
    next_expiry_seconds: float | None  # None: there is no lease
    clock_seconds: float = 0.0  # the database's clock, in seconds since 1970


def survey() -> Statement[Survey]:
    return Statement(
        """
        SELECT (SELECT count(*) FROM faultline.workers WHERE lost_at IS NULL),
            ARRAY(SELECT worker FROM faultline.vanished_workers()),
            extract(epoch FROM faultline.next_expiry() - clock_timestamp())::float8,
            extract(epoch FROM clock_timestamp())::float8
        """,
        (),
        lambda rows: Survey(*rows[0]),
    )


@dataclass(frozen=True, slots=True)
class LeaseSighting:
    lease_id: UUID
    expires_at: datetime
    lease_seconds: float


def running_leases(*, limit: int) -> Statement[list[LeaseSighting]]:
    return Statement(
        """
        SELECT lease_id, lease_expires_at, lease_seconds FROM faultline.jobs
        WHERE state = 'running' ORDER BY lease_expires_at LIMIT %s
        """,
        (limit,),
        lambda rows: [LeaseSighting(*row) for row in rows],
    )


def register_worker(
    worker: str,
    *,
    host: str,
    pid: int,
    queues: Sequence[str],
    holds_locks: bool,
    lock_key: int | None = None,
) -> Statement[int]:
    """Register a worker; `lock_key` is kept for a worker whose row was purged."""
    return Statement(
        "SELECT faultline.register_worker(%s, %s, %s, %s, %s, %s)",
        (worker, host, pid, list(queues), holds_locks, lock_key),
        lambda rows: int(rows[0][0]),
    )


def hold_worker_lock(lock_key: int) -> Statement[bool]:
    """Take the worker's lock for this session; returns whether it holds it.

    The session that registered holds it too, so it outlasts a lost connection for longer than a lease.
    The statement does not wait: another account may hold the lock, and heartbeats must go on.
    """
    return Statement(
        """
        SELECT pg_try_advisory_lock_shared(%s, %s),
            set_config('tcp_user_timeout', '600000', false)
        """,
        (LOCK_CLASS, lock_key),
        lambda rows: bool(rows[0][0]),
    )


def drain_worker(worker: str) -> Statement[None]:
    return Statement("SELECT faultline.drain_worker(%s)", (worker,), no_result)


def deregister_worker(worker: str) -> Statement[None]:
    return Statement("SELECT faultline.deregister_worker(%s)", (worker,), no_result)


def remove_dead_workers(workers: Sequence[str]) -> Statement[None]:
    return Statement("SELECT faultline.bury_workers(%s)", (list(workers),), no_result)


@dataclass(frozen=True, slots=True)
class DrainRequest:
    """A worker that was asked to drain; also a lost one, in case it comes back."""

    worker: str
    requested_at: datetime  # the first request
    is_lost: bool


def request_drain(workers: Sequence[str] | None) -> Statement[list[DrainRequest]]:
    """Ask workers to drain; None asks all that are not lost. Unknown ids are left out."""
    return Statement(
        "SELECT worker, requested_at, is_lost FROM faultline.request_drain(%s::text[])",
        (None if workers is None else list(workers),),
        lambda rows: [DrainRequest(*row) for row in rows],
    )


def is_drain_requested(worker: str) -> Statement[bool]:
    """Whether a drain is requested: a worker may have missed the notification."""
    return Statement(
        """
        SELECT EXISTS (SELECT FROM faultline.workers
            WHERE id = %s AND drain_requested_at IS NOT NULL)
        """,
        (worker,),
        lambda rows: bool(rows[0][0]),
    )


def call_of(worker: str) -> str:
    """The notification that makes this worker's next heartbeat come at once."""
    return f"!{worker}"


def announce_idle(worker: str, queues: Collection[str]) -> Statement[None]:
    """Have jobs of these queues, and of no others, wake this worker."""
    return Statement("SELECT faultline.announce_idle(%s, %s)", (worker, list(queues)), no_result)


def withdraw_idle(worker: str, notified: Sequence[str] = ()) -> Statement[None]:
    """Wake this worker no more, and wake others for `notified` queues."""
    return Statement("SELECT faultline.withdraw_idle(%s, %s)", (worker, list(notified)), no_result)


def listen_as(worker: str) -> Statement[None]:
    """Listen on the channel of this worker."""
    return Statement("SELECT faultline.listen_as(%s)", (worker,), no_result)


class LaterLook(NamedTuple):
    """A notification that waiting jobs of a queue may start in so many seconds."""

    seconds: float
    queue: str


def later_look(notified: str) -> LaterLook | None:
    """Read '@0.25 billing', which places.sql sends; None for other payloads."""
    if not notified.startswith("@"):
        return None
    seconds, _, queue = notified[1:].partition(" ")
    try:
        return LaterLook(min(max(0.0, float(seconds)), 60.0), queue)
    except ValueError:
        return None


# A worker without a heartbeat for this long, or for its longest lease, does not count as alive.
SILENCE_SECONDS = 60.0


class WorkerStatus(StrEnum):
    ALIVE = "alive"
    DRAINING = "draining"  # finishes its jobs and claims no more
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
    blocked_seconds: float | None = None  # for how long its event loop has been blocked
    blocked_job: UUID | None = None  # the job whose handler blocks the loop, if it is known
    blocked_frame: str | None = None
    blocked_stack: str | None = None


def registry() -> Statement[list[WorkerSighting]]:
    """Every registered worker.

    A lost worker is found as faultline.vanished_workers() does, without calling that function, which only
    workers may call.
    """
    return Statement(
        """
        WITH held AS (SELECT lease_owner, count(*) AS jobs, max(lease_seconds) AS longest_lease
            FROM faultline.jobs WHERE state = 'running' GROUP BY lease_owner)
        SELECT w.id, CASE WHEN w.lost_at IS NOT NULL OR (w.holds_locks
            AND w.server_started_at = pg_postmaster_start_time() AND w.lock_key::oid NOT IN (
                SELECT l.objid FROM pg_locks AS l WHERE l.locktype = 'advisory' AND l.granted
                AND l.classid = %s AND l.objsubid = 2 AND l.database = (SELECT d.oid
                    FROM pg_database AS d WHERE d.datname = current_database()))) THEN 'lost'
            WHEN seen.seconds_ago > greatest(%s, h.longest_lease) THEN 'silent'
            WHEN w.draining THEN 'draining' ELSE 'alive' END,
            w.queues, w.holds_locks, seen.seconds_ago, coalesce(h.jobs, 0),
            extract(epoch FROM clock_timestamp() - w.blocked_since)::float8, w.blocked_job,
            w.blocked_frame, w.blocked_stack
        FROM faultline.workers AS w LEFT JOIN held AS h ON h.lease_owner = w.id
        CROSS JOIN LATERAL (SELECT
            extract(epoch FROM clock_timestamp() - w.last_heartbeat_at)::float8) AS seen (seconds_ago)
        ORDER BY w.id
        """,
        (LOCK_CLASS, SILENCE_SECONDS),
        lambda rows: [WorkerSighting(row[0], WorkerStatus(row[1]), *row[2:]) for row in rows],
    )


def report_blocked(
    worker: str,
    seconds: float | None,
    *,
    job_id: UUID | None = None,
    frame: str | None = None,
    stack: str | None = None,
) -> Statement[None]:
    """Report for how long the worker's event loop has been blocked; None: it is not."""
    duration = None if seconds is None else timedelta(seconds=seconds)
    return Statement(
        "SELECT faultline.report_blocked(%s, %s, %s, %s, %s)",
        (worker, duration, job_id, frame, stack),
        lambda rows: None,
    )


@dataclass(frozen=True, slots=True)
class RegisteredWorker:
    host: str
    pid: int
    started_at: datetime
    last_heartbeat_at: datetime
    lost_seconds: float | None  # since the reconciler marked it lost


def registrations() -> Statement[dict[str, RegisteredWorker]]:
    return Statement(
        """
        SELECT id, host, pid, started_at, last_heartbeat_at,
            extract(epoch FROM clock_timestamp() - lost_at)::float8
        FROM faultline.workers ORDER BY id LIMIT %s
        """,
        (MAX_REGISTRATIONS,),
        lambda rows: {row[0]: RegisteredWorker(*row[1:]) for row in rows},
    )
