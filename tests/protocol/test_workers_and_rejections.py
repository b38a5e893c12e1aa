"""The registry of workers, workers that vanished, and recorded rejections."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg

from .steps import (
    Connect,
    Connection,
    claim_new,
    commit,
    end_session,
    expire,
    one,
    rows,
    set_job,
    take_over,
    value,
)

LOCK_CLASS = 1717663084


def register(conn: Connection, worker: str = "first", *, holds_locks: bool = True) -> int:
    call = "SELECT faultline.register_worker(%s, 'host', 1, '{default}', %s)"
    return int(value(conn, call, worker, holds_locks))


def vanished(conn: Connection) -> list[str]:
    return [worker for (worker,) in rows(conn, "SELECT * FROM faultline.vanished_workers()")]


def hold_lock(session: Connection, lock_key: int) -> Connection:
    session.execute("SELECT pg_advisory_lock_shared(%s, %s)", [LOCK_CLASS, lock_key])
    return session


def column(conn: Connection, name: str) -> Any:
    return value(conn, f"SELECT {name} FROM faultline.workers WHERE id = 'first'")


def mark_dead(conn: Connection, *workers: str) -> None:
    conn.execute("SELECT faultline.bury_workers(%s)", [list(workers)])


def test_a_worker_has_not_vanished_while_its_session_lasts(
    conn: Connection, connect: Connect
) -> None:
    session = connect()
    register(session)
    assert vanished(conn) == []
    end_session(conn, session)
    assert vanished(conn) == ["first"]


def test_a_worker_has_not_vanished_until_both_its_sessions_have_ended(
    conn: Connection, connect: Connect
) -> None:
    session = connect()
    other = hold_lock(connect(), register(session))
    end_session(conn, session)
    assert vanished(conn) == []
    end_session(conn, other)
    assert vanished(conn) == ["first"]


def test_only_the_worker_whose_sessions_have_ended_has_vanished(
    conn: Connection, connect: Connect
) -> None:
    dead, alive = connect(), connect()
    register(dead, "dead")
    register(alive, "alive")
    end_session(conn, dead)
    assert vanished(conn) == ["dead"]


def test_a_worker_behind_a_pooler_never_vanishes(conn: Connection, connect: Connect) -> None:
    session = connect()
    register(session, holds_locks=False)
    end_session(conn, session)
    assert vanished(conn) == []


def test_a_worker_behind_a_pooler_holds_no_lock(conn: Connection) -> None:
    lock_key = register(conn, holds_locks=False)
    release = "SELECT pg_advisory_unlock_shared(%s, %s)"
    assert rows(conn, release, LOCK_CLASS, lock_key) == [(False,)]


def test_a_worker_registered_before_a_restart_of_the_server_has_not_vanished(
    conn: Connection, connect: Connect
) -> None:
    session = connect()
    register(session)
    end_session(conn, session)
    conn.execute("UPDATE faultline.workers SET server_started_at = '2001-01-01'")
    assert vanished(conn) == []


def test_a_lock_in_another_database_keeps_no_worker_alive(
    conn: Connection, connect: Connect, server_url: str
) -> None:
    session = connect()
    lock_key = register(session)
    with psycopg.connect(server_url, autocommit=True) as elsewhere:
        hold_lock(elsewhere, lock_key)
        end_session(conn, session)
        assert vanished(conn) == ["first"]


def test_another_kind_of_lock_with_the_same_number_keeps_no_worker_alive(
    conn: Connection, connect: Connect
) -> None:
    session = connect()
    conn.execute("SELECT pg_advisory_lock(42, %s)", [register(session)])
    end_session(conn, session)
    assert vanished(conn) == ["first"]


def test_two_workers_never_share_a_lock(conn: Connection) -> None:
    assert register(conn, "first") != register(conn, "second")


def test_a_worker_that_registers_again_keeps_its_lock_and_is_not_lost(
    conn: Connection, connect: Connect
) -> None:
    session = connect()
    lock_key = register(session)
    end_session(conn, session)
    mark_dead(conn, "first")
    assert column(conn, "lost_at") is not None
    assert register(connect()) == lock_key
    assert column(conn, "lost_at") is None


def test_a_worker_that_registers_again_belongs_to_this_run_of_the_server(
    conn: Connection,
) -> None:
    register(conn)
    conn.execute("UPDATE faultline.workers SET server_started_at = '2001-01-01'")
    register(conn)
    assert column(conn, "server_started_at = pg_postmaster_start_time()")


def test_a_worker_marked_lost_is_not_reported_again(conn: Connection, connect: Connect) -> None:
    session = connect()
    register(session)
    end_session(conn, session)
    mark_dead(conn, "first")
    assert vanished(conn) == []


def test_only_the_named_workers_are_marked_lost(conn: Connection) -> None:
    register(conn, "first")
    mark_dead(conn, "second")
    assert column(conn, "lost_at") is None


def test_a_worker_that_still_has_jobs_is_not_marked_lost(conn: Connection) -> None:
    register(conn, "first")
    lease = claim_new(conn, worker="first")
    mark_dead(conn, "first")
    assert column(conn, "lost_at") is None
    commit(conn, lease)
    mark_dead(conn, "first")
    assert column(conn, "lost_at") is not None


def test_a_worker_that_was_lost_a_day_ago_is_deleted(conn: Connection) -> None:
    for worker, since in (("old", "25 hours"), ("recent", "23 hours")):
        register(conn, worker)
        conn.execute(
            "UPDATE faultline.workers SET lost_at = clock_timestamp() - %s::interval WHERE id = %s",
            [since, worker],
        )
    mark_dead(conn)
    assert rows(conn, "SELECT id FROM faultline.workers") == [("recent",)]


def test_a_draining_worker_is_marked_as_such(conn: Connection) -> None:
    register(conn)
    conn.execute("SELECT faultline.drain_worker('first')")
    assert column(conn, "draining") is True


def test_a_worker_that_deregisters_has_not_vanished(conn: Connection) -> None:
    register(conn)
    conn.execute("SELECT faultline.deregister_worker('first')")
    assert rows(conn, "SELECT id FROM faultline.workers") == []


# ── refused writes ───────────────────────────────────────────────────────────────────────────────


def record_rejection(conn: Connection, job_id: UUID) -> timedelta:
    call = "SELECT faultline.record_rejection(%s, 1, 'first', 'token_mismatch')"
    return value(conn, call, job_id)


def test_a_rejection_is_kept_with_both_tokens(conn: Connection) -> None:
    lease = claim_new(conn)
    take_over(conn, lease)
    record_rejection(conn, lease.job_id)
    kept = "SELECT job_id, worker, stale_token, current_token, reason FROM faultline.rejections"
    assert one(conn, kept) == (lease.job_id, "first", 1, 2, "token_mismatch")


def test_two_attempts_overlapped_from_the_second_claim_until_it_ended(conn: Connection) -> None:
    lease = claim_new(conn)
    commit(conn, take_over(conn, lease))
    set_job(conn, lease.job_id, "claimed_at = finished_at - interval '10 minutes'")
    assert record_rejection(conn, lease.job_id) == timedelta(minutes=10)
    assert value(conn, "SELECT overlap FROM faultline.rejections") == timedelta(minutes=10)


def test_two_attempts_overlap_until_now_while_the_second_still_runs(conn: Connection) -> None:
    lease = claim_new(conn)
    take_over(conn, lease)
    set_job(conn, lease.job_id, "claimed_at = clock_timestamp() - interval '1 hour'")
    assert record_rejection(conn, lease.job_id) >= timedelta(hours=1)


def test_a_lease_that_was_not_taken_over_has_no_overlap(conn: Connection) -> None:
    lease = claim_new(conn)
    expire(conn, lease)
    assert record_rejection(conn, lease.job_id) == timedelta(0)


def test_a_rejection_of_an_unknown_job_is_kept_too(conn: Connection) -> None:
    assert record_rejection(conn, uuid4()) == timedelta(0)
    assert value(conn, "SELECT current_token FROM faultline.rejections") is None
