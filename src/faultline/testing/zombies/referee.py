"""What is done to the database in a run, and asked of it, by somebody who takes no part in it."""

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
_LOOK_SECONDS = 0.002


@dataclass(frozen=True, slots=True)
class Standing:
    """A job as it stands, and what is on record about it."""

    state: str
    token: int
    attempts: int
    failed_reason: str | None
    refusals: int


def standing(conn: Connection, job_id: UUID) -> Standing:
    row = conn.execute(
        "SELECT state, fencing_token, attempts, failed_reason,"
        " (SELECT count(*) FROM faultline.rejections WHERE job_id = jobs.id)"
        " FROM faultline.jobs WHERE id = %s",
        [job_id],
    ).fetchone()
    assert row is not None  # noqa: S101 - it was enqueued, and nothing purges it
    return Standing(*row)


def end_other_sessions(conn: Connection) -> None:
    _end_sessions(conn, "true")


def end_idle_holders(conn: Connection, job_id: UUID) -> int:
    """What the server does by itself when a fenced transaction sits idle for longer than its lease:
    until then nobody can take the job over. How many there were."""
    free = conn.execute(
        "SELECT FROM faultline.jobs WHERE id = %s FOR UPDATE SKIP LOCKED", [job_id]
    ).fetchone()
    if free is not None:
        return 0
    return _end_sessions(
        conn,
        "state LIKE 'idle in transaction%' AND EXISTS (SELECT FROM pg_locks WHERE"
        " pg_locks.pid = session.pid AND relation = 'faultline.jobs'::regclass AND mode ~ '^Row')",
    )


def _end_sessions(conn: Connection, which: LiteralString) -> int:
    """Asked to end all at once and then waited for: the server's own wait looks ten times a second."""
    ended = conn.execute(
        "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity AS session"  # noqa: S608 - our own text
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND backend_type = 'client backend' AND " + which
    ).fetchall()
    pids = [pid for pid, _ in ended]
    give_up_at = time.monotonic() + _END_SECONDS
    while pids and time.monotonic() < give_up_at:
        left = conn.execute("SELECT FROM pg_stat_activity WHERE pid = ANY (%s)", [pids]).rowcount
        if not left:
            break
        time.sleep(_LOOK_SECONDS)
    return len(pids)


def await_first_heartbeat(conn: Connection, timeout_seconds: float) -> bool:
    """A worker's first heartbeat may come while its first job is already under way, and would revive a
    lease that has just been ended. Its next one is a quarter of a lease away."""
    give_up_at = time.monotonic() + timeout_seconds
    while time.monotonic() < give_up_at:
        beaten = conn.execute(
            "SELECT FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle'"
            " AND application_name = 'faultline heartbeat' AND query ~ 'faultline.heartbeat'"
        ).rowcount
        if beaten:
            return True
        time.sleep(_LOOK_SECONDS)
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


def anything_due(conn: Connection) -> bool:
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


def somebody_waits_for(conn: Connection, holders: Sequence[int]) -> bool:
    """Whether any session waits for a lock of one of theirs. Other waits pass by themselves: for a
    heartbeat of one's own, or, between databases, for somebody who notifies."""
    row = conn.execute(
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock' AND pg_blocking_pids(pid) && %s::integer[])",
        [list(holders)],
    ).fetchone()
    return bool(row and row[0])


def take(conn: Connection, job_id: UUID, worker: str, queues: Sequence[str]) -> Claim | None:
    """Claim the job for `worker`; None when it cannot be had any more."""
    mine = None
    for claim in run(
        conn, protocol.claim(worker, list(queues), batch_size=100, lease_seconds=3_600)
    ):
        if claim.job_id == job_id:
            mine = claim
        else:
            give_back(conn, claim)
    return mine


def give_back(conn: Connection, claim: Claim) -> None:
    with contextlib.suppress(StaleLease):
        run(conn, protocol.release(claim))
