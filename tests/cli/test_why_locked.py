"""`faultline why` names the transactions that lock a job's row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from uuid import UUID

import pytest

from faultline.postgres.sessions import run
from faultline.statements import locks, protocol

from .conftest import Connection, Explained, Faultline, claim, enqueue, expire, register


@contextmanager
def sharing(job_id: UUID, *holders: Connection) -> Iterator[None]:
    """All of them hold its row."""
    with ExitStack() as transactions:
        for holder in holders:
            transactions.enter_context(holder.transaction())
            holder.execute("SELECT FROM faultline.jobs WHERE id = %s FOR KEY SHARE", [job_id])
        yield


@pytest.mark.parametrize("strength", ["UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"])
def test_a_session_that_locks_the_row_is_named(
    faultline: Faultline, conn: Connection, worker_session: Connection, strength: str
) -> None:
    register(worker_session, "w")
    job_id = enqueue(conn)
    with conn.transaction():
        conn.execute(f"SELECT id FROM faultline.jobs WHERE id = %s FOR {strength}", [job_id])
        asked = Explained(faultline, job_id)
    pid = conn.info.backend_pid
    assert asked.code == "locked"
    assert asked.answer.startswith(f"it is due, but its row is locked by session {pid}")
    assert "idle in transaction" in asked.answer
    assert f"FOR {strength}" in asked.answer
    assert f"pg_terminate_backend({pid})" in asked.advice


def test_two_sessions_that_share_the_lock_are_both_named(
    faultline: Faultline, conn: Connection, worker_session: Connection
) -> None:
    job_id = enqueue(conn)
    with sharing(job_id, conn, worker_session):
        asked = Explained(faultline, job_id)
    assert asked.code == "locked"
    for holder in (conn, worker_session):
        assert f"pg_terminate_backend({holder.info.backend_pid})" in asked.advice


def test_a_lock_below_a_savepoint_is_found_too(faultline: Faultline, conn: Connection) -> None:
    job_id = enqueue(conn)
    with conn.transaction(), conn.transaction():
        conn.execute("SELECT FROM faultline.jobs WHERE id = %s FOR UPDATE", [job_id])
        asked = Explained(faultline, job_id)
    assert asked.code == "locked"


def test_a_released_lock_is_not_the_answer(
    faultline: Faultline, conn: Connection, worker_session: Connection
) -> None:
    job_id = enqueue(conn)
    with sharing(job_id, conn, worker_session):
        pass
    assert Explained(faultline, job_id).code == "no_worker"


@pytest.mark.parametrize("number", ["2000000000", "4000000000"])
def test_a_number_that_is_no_multixact_has_no_lockers(conn: Connection, number: str) -> None:
    assert run(conn, locks.lockers_behind(number)) == []


def test_a_prepared_transaction_that_locks_the_row_is_named(
    faultline: Faultline, conn: Connection
) -> None:
    job_id = enqueue(conn)
    gid = f"it's {job_id}"
    quoted = gid.replace("'", "''")
    conn.execute("BEGIN")
    conn.execute("SELECT FROM faultline.jobs WHERE id = %s FOR UPDATE", [job_id])
    conn.execute(f"PREPARE TRANSACTION '{quoted}'")
    try:
        asked = Explained(faultline, job_id)
        doctor = faultline("doctor", "--json").json["checks"]
    finally:
        conn.execute(f"ROLLBACK PREPARED '{quoted}'")
    assert asked.code == "locked"
    assert f"the prepared transaction {gid!r}" in asked.answer
    assert f"ROLLBACK PREPARED '{quoted}'" in asked.advice
    [seen] = [check for check in doctor if check["name"] == "prepared transaction"]
    assert seen["level"] == "problem"
    assert gid in seen["says"]


def test_an_expired_lease_locked_by_a_session_is_explained(
    faultline: Faultline, conn: Connection, worker_session: Connection
) -> None:
    register(worker_session, "w")
    job_id = enqueue(conn)
    claimed = claim(conn)
    with conn.transaction():
        run(conn, protocol.assert_fence(claimed))
        expire(worker_session, job_id)
        asked = Explained(faultline, job_id)
        doctor = faultline("doctor", "--json").json["checks"]
    assert asked.code == "locked"
    assert "its lease ran out 1 h 30 min ago, and its row is locked by session" in asked.answer
    [seen] = [check for check in doctor if check["name"] == "locked job"]
    assert str(job_id) in seen["says"]
    assert f"pg_terminate_backend({conn.info.backend_pid})" in seen["advice"]


def test_why_changes_nothing(
    faultline: Faultline, conn: Connection, worker_session: Connection
) -> None:
    register(worker_session, "w")
    job_id = enqueue(conn)
    before = conn.execute("SELECT ctid, * FROM faultline.jobs").fetchall()
    faultline("why", str(job_id))
    assert conn.execute("SELECT ctid, * FROM faultline.jobs").fetchall() == before
    assert claim(conn, "w").job_id == job_id


def test_a_locked_table_is_reported_rather_than_waited_for(
    faultline: Faultline, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faultline.cli.context.LOCK_TIMEOUT_SECONDS", 0.01)
    job_id = enqueue(conn)
    with conn.transaction():
        conn.execute("LOCK TABLE faultline.jobs IN ACCESS EXCLUSIVE MODE")
        error = faultline("why", str(job_id)).refused("database_refused")
    assert "lock timeout" in error.message
