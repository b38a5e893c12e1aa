"""Statements of the experiment itself: expire leases, end sessions, read the job."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import LiteralString
from uuid import UUID

from faultline.errors import StaleLease
from faultline.model import Claim
from faultline.postgres.sessions import Connection, run
from faultline.statements import protocol

_END_SECONDS = 30.0
_POLL_SECONDS = 0.002


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """The state of a job and the number of its refused writes."""

    state: str
    token: int
    attempts: int
    failed_reason: str | None
    refusals: int


def job_snapshot(conn: Connection, job_id: UUID) -> JobSnapshot:
    row = conn.execute(
        "SELECT state, fencing_token, attempts, failed_reason,"
        " (SELECT count(*) FROM faultline.rejections WHERE job_id = jobs.id)"
        " FROM faultline.jobs WHERE id = %s",
        [job_id],
    ).fetchone()
    assert row is not None  # noqa: S101 - the job was enqueued, and nothing purges it
    return JobSnapshot(*row)


def end_other_sessions(conn: Connection) -> None:
    _end_sessions(conn, "true")


def end_idle_fenced_transactions(conn: Connection, job_id: UUID) -> int:
    """End fenced transactions that are idle; return how many there were.

    PostgreSQL does this by itself after the length of the lease. The reconciler does it if the session waits
    in the middle of a message, as asyncpg's does between two parts of a statement. Until then no worker can
    take the job over.
    """
    free = conn.execute(
        "SELECT FROM faultline.jobs WHERE id = %s FOR UPDATE SKIP LOCKED", [job_id]
    ).fetchone()
    if free is not None:
        return 0
    return _end_sessions(
        conn,
        "(state LIKE 'idle in transaction%' OR wait_event = 'ClientRead')"
        " AND EXISTS (SELECT FROM pg_locks WHERE pg_locks.pid = session.pid"
        " AND relation = 'faultline.jobs'::regclass AND mode ~ '^Row')",
    )


def _end_sessions(conn: Connection, which: LiteralString) -> int:
    """End the sessions and wait until they are gone; return their number.

    PostgreSQL's own wait polls only ten times a second.
    """
    ended = conn.execute(
        "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity AS session"  # noqa: S608 - constant text
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND backend_type = 'client backend' AND " + which
    ).fetchall()
    pids = [pid for pid, _ in ended]
    deadline = time.monotonic() + _END_SECONDS
    while pids and time.monotonic() < deadline:
        left = conn.execute("SELECT FROM pg_stat_activity WHERE pid = ANY (%s)", [pids]).rowcount
        if not left:
            break
        time.sleep(_POLL_SECONDS)
    return len(pids)


def wait_for_first_heartbeat(conn: Connection, timeout_seconds: float) -> bool:
    """Wait for the worker's first heartbeat; return whether it came.

    It may come after the first job has started, and would then renew a lease that the experiment has just
    expired. The next heartbeat is a quarter of a lease away.
    """
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        heartbeats = conn.execute(
            "SELECT FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle'"
            " AND application_name = 'faultline heartbeat' AND query ~ 'faultline.heartbeat'"
        ).rowcount
        if heartbeats:
            return True
        time.sleep(_POLL_SECONDS)
    return False


def expire_lease(conn: Connection, job_id: UUID) -> None:
    conn.execute(
        "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() - interval '1 second'"
        " WHERE id = %s AND state = 'running'",
        [job_id],
    )


def make_due(conn: Connection, job_id: UUID) -> None:
    conn.execute(
        "UPDATE faultline.jobs SET next_run_at = clock_timestamp()"
        " WHERE id = %s AND state = 'queued'",
        [job_id],
    )


def is_any_job_due(conn: Connection) -> bool:
    row = conn.execute(
        "SELECT EXISTS (SELECT FROM faultline.jobs"
        " WHERE state = 'queued' AND next_run_at <= clock_timestamp())"
    ).fetchone()
    return bool(row and row[0])


def other_sessions(conn: Connection) -> list[int]:
    rows = conn.execute(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    ).fetchall()
    return [pid for (pid,) in rows]


def any_session_waits_for(conn: Connection, holders: Sequence[int]) -> bool:
    """Tell whether a session waits for a lock that one of `holders` has.

    Other waits end without help: for the worker's own heartbeat, or for another database's NOTIFY.
    """
    row = conn.execute(
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock' AND pg_blocking_pids(pid) && %s::integer[])",
        [list(holders)],
    ).fetchone()
    return bool(row and row[0])


def claim_job(conn: Connection, job_id: UUID, worker: str, queues: Sequence[str]) -> Claim | None:
    """Claim the job for `worker`; return None if it cannot be claimed."""
    claimed = None
    for claim in run(
        conn, protocol.claim(worker, list(queues), batch_size=100, lease_seconds=3_600)
    ):
        if claim.job_id == job_id:
            claimed = claim
        else:
            release(conn, claim)
    return claimed


def release(conn: Connection, claim: Claim) -> None:
    with contextlib.suppress(StaleLease):
        run(conn, protocol.release(claim))
