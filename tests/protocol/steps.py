"""Calls of the public SQL and changes of time that the protocol's tests share."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Barrier
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from tests.waiting import wait_until

T = TypeVar("T")
Connection = psycopg.Connection[Any]
Connect = Callable[[], Connection]
Row = tuple[Any, ...]


class Lease(NamedTuple):
    job_id: UUID
    token: int
    lease_id: UUID


# ── verbs ────────────────────────────────────────────────────────────────────────────────────────


def enqueue(
    conn: Connection, task: str = "send_mail", payload: Any = None, **options: Any
) -> tuple[UUID, bool]:
    """The new job's id, and whether it existed before."""
    named = "".join(f", {name} => %s" for name in options)
    call = f"SELECT job_id, existing FROM faultline.enqueue(%s, %s{named})"
    return one(conn, call, task, Jsonb({} if payload is None else payload), *options.values())


def enqueue_many(conn: Connection, payloads: Sequence[Any], **options: Any) -> list[Row]:
    named = "".join(f", {name} => %s" for name in options)
    call = f"SELECT job_id, existing FROM faultline.enqueue_many('send_mail', %s{named})"
    return rows(conn, call, [Jsonb(payload) for payload in payloads], *options.values())


def enqueue_one_for_each_key(conn: Connection, keys: Sequence[str | None]) -> list[Row]:
    return enqueue_many(conn, [{}] * len(keys), idempotency_keys=list(keys))


def claim_batch(
    conn: Connection,
    size: int = 10,
    *,
    worker: str = "first",
    queues: Sequence[str] = ("default",),
    lease: str = "1 minute",
) -> list[Lease]:
    call = "SELECT job_id, fencing_token, lease_id FROM faultline.claim(%s, %s, %s, %s)"
    return [Lease(*row) for row in rows(conn, call, worker, list(queues), size, lease)]


def claim(conn: Connection, *, worker: str = "first", lease: str = "1 minute") -> Lease:
    [claimed] = claim_batch(conn, 1, worker=worker, lease=lease)
    return claimed


def claim_new(conn: Connection, *, worker: str = "first", **options: Any) -> Lease:
    """Enqueue a job and claim it; nothing else may be due."""
    job_id, _ = enqueue(conn, **options)
    claimed = claim(conn, worker=worker)
    assert claimed.job_id == job_id
    return claimed


def claim_new_batch(conn: Connection, count: int, *, worker: str = "first") -> list[Lease]:
    """Enqueue jobs and claim them, in the order of their ids."""
    enqueue_many(conn, [{}] * count)
    return sorted(claim_batch(conn, count, worker=worker))


def heartbeat(
    conn: Connection, *leases: Lease, worker: str = "first", lease: str = "1 hour"
) -> list[str]:
    """One outcome for each lease."""
    call = "SELECT job_id, outcome FROM faultline.heartbeat(%s, %s, %s, %s, %s)"
    outcomes = dict(rows(conn, call, worker, *columns(leases), lease))
    return [outcomes[given.job_id] for given in leases]


def enter(conn: Connection, lease: Lease) -> None:
    """The commit in its plainest form."""
    conn.execute(
        "INSERT INTO faultline.ledger (job_id, fencing_token, lease_id) VALUES (%s, %s, %s)", lease
    )


def commit(conn: Connection, lease: Lease) -> None:
    conn.execute("SELECT faultline.commit(%s, %s, %s)", lease)


def committed(conn: Connection) -> Lease:
    """Enqueue a job, claim it and commit it; no other job may be due."""
    lease = claim_new(conn)
    commit(conn, lease)
    return lease


def release(conn: Connection, lease: Lease) -> None:
    conn.execute("SELECT faultline.release(%s, %s, %s)", lease)


def assert_fence(conn: Connection, lease: Lease) -> None:
    conn.execute("SELECT faultline.assert_fence(%s, %s, %s)", lease)


def begin_fenced(conn: Connection, lease: Lease, isolation: str = "READ COMMITTED") -> Connection:
    """Claim in a transaction that is left open."""
    conn.execute(f"BEGIN ISOLATION LEVEL {isolation}")
    assert_fence(conn, lease)
    return conn


def reconcile(conn: Connection, **options: Any) -> list[UUID]:
    """The ids of the reconciled jobs."""
    named = ", ".join(f"{name} => %s" for name in options)
    call = f"SELECT job_id FROM faultline.reconcile({named})"
    return [job_id for (job_id,) in rows(conn, call, *options.values())]


def cancel(conn: Connection, job_id: UUID) -> str:
    return value(conn, "SELECT faultline.cancel(%s)", job_id)


def take_over(conn: Connection, lease: Lease, *, worker: str = "second") -> Lease:
    """Let the lease expire, and have another worker claim the job."""
    expire(conn, lease)
    successor = claim(conn, worker=worker)
    assert successor.job_id == lease.job_id
    return successor


# ── the clock ────────────────────────────────────────────────────────────────────────────────────


def expire(conn: Connection, lease: Lease) -> None:
    set_job(conn, lease.job_id, "lease_expires_at = clock_timestamp() - interval '1 second'")


def make_due(conn: Connection, job_id: UUID, ago: str = "1 second") -> None:
    set_job(conn, job_id, f"next_run_at = clock_timestamp() - interval '{ago}'")


def set_job(conn: Connection, job_id: UUID, assignment: str) -> None:
    changed = conn.execute(f"UPDATE faultline.jobs SET {assignment} WHERE id = %s", [job_id])
    assert changed.rowcount == 1


# ── current state ─────────────────────────────────────────────────────────────────────────────


def job(conn: Connection, job_id: UUID) -> dict[str, Any]:
    with conn.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute("SELECT * FROM faultline.jobs WHERE id = %s", [job_id]).fetchone()
    assert found is not None
    return found


def state(conn: Connection, job_id: UUID) -> str:
    return str(job(conn, job_id)["state"])


def entries(conn: Connection) -> list[Lease]:
    """The ledger, in the order of the jobs."""
    query = "SELECT job_id, fencing_token, lease_id FROM faultline.ledger ORDER BY job_id"
    return [Lease(*row) for row in rows(conn, query)]


def logged(conn: Connection, job_id: UUID) -> list[Row]:
    """The logged attempts, which did not end in the ledger."""
    query = (
        "SELECT attempt, fencing_token, worker, outcome, error"
        " FROM faultline.attempts_log WHERE job_id = %s ORDER BY id"
    )
    return rows(conn, query, job_id)


def is_at_least_from_now(conn: Connection, moment: Any, delay: str) -> bool:
    return value(conn, "SELECT %s >= clock_timestamp() + %s::interval", moment, delay)


# ── plumbing ─────────────────────────────────────────────────────────────────────────────────────


def rows(conn: Connection, query: str, *params: Any) -> list[Row]:
    return conn.execute(query, params).fetchall()


def one(conn: Connection, query: str, *params: Any) -> Any:
    [row] = rows(conn, query, *params)
    return row


def value(conn: Connection, query: str, *params: Any) -> Any:
    return one(conn, query, *params)[0]


def columns(leases: Sequence[Lease]) -> tuple[list[UUID], list[int], list[UUID]]:
    return (
        [lease.job_id for lease in leases],
        [lease.token for lease in leases],
        [lease.lease_id for lease in leases],
    )


@contextlib.contextmanager
def refused(sqlstate: str, **detail: Any) -> Iterator[None]:
    """Expect this SQLSTATE, with at least these fields in its JSON detail."""
    with pytest.raises(psycopg.Error) as caught:
        yield
    assert caught.value.sqlstate == sqlstate, caught.value
    if detail:
        facts = json.loads(caught.value.diag.message_detail or "{}")
        assert {name: facts[name] for name in detail} == detail


def never_waits(conn: Connection) -> Connection:
    """Make every wait for a lock on this connection an error.

    After a while only: a COMMIT with a NOTIFY waits for those of other databases.
    """
    conn.execute("SET lock_timeout = '20s'")
    return conn


def end_session(observer: Connection, session: Connection) -> None:
    """Close the session, and wait until the server has released its locks."""
    assert value(observer, "SELECT pg_terminate_backend(%s, 30000)", session.info.backend_pid)


def start_and_wait_until_blocked(
    observer: Connection, waiter: Connection, call: Callable[[Connection], T]
) -> Future[T]:
    """Run the call in a thread, and return once it waits for a lock on the server."""
    thread = ThreadPoolExecutor(1)
    future = thread.submit(call, waiter)
    thread.shutdown(wait=False)
    blocked = "SELECT cardinality(pg_blocking_pids(%s)) > 0"

    def has_not_finished() -> None:
        assert not future.done(), future.result()

    wait_until(
        lambda: value(observer, blocked, waiter.info.backend_pid),
        "the wait for a lock",
        check=has_not_finished,
    )
    return future


def is_refused_after_waiting_for_a_takeover(
    conn: Connection, connect: Connect, late_call: Callable[[Connection, Lease], object]
) -> None:
    """Run the call while another session claims; it waits until that claim commits."""
    lease = claim_new(conn)
    expire(conn, lease)
    thief = connect()
    thief.execute("BEGIN")
    claim(thief, worker="second")
    late = start_and_wait_until_blocked(conn, connect(), lambda c: late_call(c, lease))
    thief.execute("COMMIT")
    with refused("FL001", reason="token_mismatch", current_token=2):
        late.result()
    assert job(conn, lease.job_id)["lease_owner"] == "second"


def all_at_once(connections: Sequence[Connection], call: Callable[[Connection], T]) -> list[T]:
    """Run the call on every connection at once, each in its own thread."""
    start = Barrier(len(connections))

    def run(conn: Connection) -> T:
        start.wait()
        return call(conn)

    with ThreadPoolExecutor(len(connections)) as threads:
        return list(threads.map(run, connections))


def channel_of(worker: str) -> str:
    """The channel on which this worker is told of due jobs."""
    digest = hashlib.md5(worker.encode(), usedforsecurity=False).hexdigest()
    return f"faultline_{digest}"
