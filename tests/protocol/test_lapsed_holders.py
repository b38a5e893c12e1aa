"""Only a frozen session that keeps an expired job locked is ended."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg

from tests.waiting import LIMIT_SECONDS, wait_until

from .steps import (
    Connect,
    Connection,
    Lease,
    begin_fenced,
    claim_new,
    expire,
    reconcile,
    rows,
    state,
)

END = "SELECT job_id, pid, prepared_as, outcome FROM faultline.end_lapsed_holders(%s)"


@contextlib.contextmanager
def frozen_in_copy(connect: Connect, lease: Lease) -> Iterator[Connection]:
    """A client that has fenced its job, begun a COPY, and sends nothing more."""
    frozen = connect()
    frozen.execute("CREATE TABLE IF NOT EXISTS copied (value text)")
    begin_fenced(frozen, lease)
    copying = frozen.cursor().copy("COPY copied FROM STDIN")
    copying.__enter__().write_row(("half of it",))
    yield frozen
    with contextlib.suppress(psycopg.Error):
        copying.__exit__(None, None, None)


def is_waiting_for_its_client(conn: Connection, pid: int) -> bool:
    query = (
        "SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Client'"
        " AND state_change < clock_timestamp() - interval '1.1 seconds'"
    )
    return bool(rows(conn, query, pid))


def test_only_the_session_that_keeps_a_lapsed_job_locked_is_ended(
    conn: Connection, connect: Connect
) -> None:
    lapsed = claim_new(conn)
    with frozen_in_copy(connect, lapsed) as frozen:
        live = claim_new(conn)
        bystander = begin_fenced(connect(), live)  # holds a job whose lease is good
        idler = connect()
        idler.execute("BEGIN")
        idler.execute("SELECT FROM faultline.jobs")
        wait_until(lambda: is_waiting_for_its_client(conn, frozen.info.backend_pid))
        assert rows(conn, END, "1 second") == []  # no lease has run out
        expire(conn, lapsed)
        assert reconcile(conn) == []  # its row is locked
        assert rows(conn, END, "1 day") == []  # not for that long
        pid = frozen.info.backend_pid

        assert rows(conn, END, "-1 day") == [(lapsed.job_id, pid, None, "ended")]

        wait_until(lambda: reconcile(conn) == [lapsed.job_id])
    assert state(conn, lapsed.job_id) == "queued"
    assert frozen.closed
    for other in (bystander, idler):
        assert rows(other, "SELECT 1") == [(1,)]


def test_a_session_that_computes_is_left_alone(conn: Connection, connect: Connect) -> None:
    lease = claim_new(conn)
    busy = begin_fenced(connect(), lease)
    with ThreadPoolExecutor(1) as threads:
        query = threads.submit(busy.execute, "SELECT pg_sleep(600)")
        pid = busy.info.backend_pid
        computing = (
            "SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'"
            " AND state_change < clock_timestamp() - interval '1.1 seconds'"
        )
        wait_until(lambda: rows(conn, computing, pid))
        expire(conn, lease)

        assert rows(conn, END, "1 second") == [(lease.job_id, pid, None, "working")]

        busy.cancel()
        assert isinstance(query.exception(LIMIT_SECONDS), psycopg.errors.QueryCanceled)


def test_a_prepared_transaction_is_reported(conn: Connection, connect: Connect) -> None:
    lease = claim_new(conn)
    gid = f"it's {lease.job_id}"
    quoted = gid.replace("'", "''")
    holder = connect()
    holder.execute("BEGIN")
    holder.execute("SELECT FROM faultline.jobs WHERE id = %s FOR KEY SHARE", [lease.job_id])
    holder.execute(f"PREPARE TRANSACTION '{quoted}'")
    try:
        expire(conn, lease)
        assert rows(conn, END, "1 second") == [(lease.job_id, None, gid, "prepared")]
    finally:
        holder.execute(f"ROLLBACK PREPARED '{quoted}'")
