"""Users' transactions above READ COMMITTED, in plain SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

Conn = psycopg.Connection[Any]
Connect = Callable[[], Conn]
Fence = tuple[Any, ...]  # job id, token, lease

FENCE = "SELECT faultline.assert_fence(%s, %s, %s)"
COMMIT = "SELECT faultline.commit(%s, %s, %s)"
EFFECT = "INSERT INTO effects VALUES ('mine')"


@pytest.fixture(params=["REPEATABLE READ", "SERIALIZABLE"])
def session(request: pytest.FixtureRequest, connect: Connect) -> Iterator[Conn]:
    """A session whose every transaction has the isolation level under test."""
    session = connect()
    session.execute(f"SET default_transaction_isolation = '{request.param.lower()}'".encode())
    yield session
    session.execute("ROLLBACK")


@pytest.fixture
def fence(conn: Conn) -> Fence:
    conn.execute("CREATE TABLE effects (what text)")
    conn.execute("SELECT faultline.enqueue('task')")
    return claim(conn)


def claim(conn: Conn, worker: str = "first") -> Fence:
    row = conn.execute(
        "SELECT job_id, fencing_token, lease_id FROM faultline.claim(%s, lease => '10 minutes')",
        [worker],
    ).fetchone()
    assert row is not None
    return row


def beat(conn: Conn, fence: Fence) -> str:
    row = conn.execute(
        "SELECT outcome FROM faultline.heartbeat('first', %s, %s, %s, '10 minutes')",
        [[value] for value in fence],
    ).fetchone()
    assert row is not None
    return str(row[0])


def give_to_another(conn: Conn, fence: Fence) -> Fence:
    conn.execute(
        "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() WHERE id = %s", fence[:1]
    )
    return claim(conn, "second")


def what_happened(conn: Conn) -> tuple[str, int, int]:
    """The job's state, the entries in the ledger, and the user's rows."""
    row = conn.execute(
        "SELECT (SELECT state FROM faultline.jobs), (SELECT count(*) FROM faultline.ledger),"
        " (SELECT count(*) FROM effects)"
    ).fetchone()
    assert row is not None
    return row


def snapshot(session: Conn) -> None:
    session.execute("BEGIN")
    session.execute("SELECT count(*) FROM effects")


def fenced_write(session: Conn, fence: Fence) -> None:
    """A user's transaction as the documentation describes it."""
    session.execute("BEGIN")
    session.execute(FENCE, fence)
    session.execute(EFFECT)
    session.execute(COMMIT, fence)
    session.execute("COMMIT")


def test_a_live_lease_commits_together_with_the_users_write(
    conn: Conn, session: Conn, fence: Fence
) -> None:
    fenced_write(session, fence)

    assert what_happened(conn) == ("succeeded", 1, 1)


def test_heartbeats_call_the_job_locked_and_do_not_disturb_the_commit(
    conn: Conn, session: Conn, fence: Fence
) -> None:
    session.execute("BEGIN")
    session.execute(FENCE, fence)
    assert beat(conn, fence) == "locked"
    session.execute(EFFECT)
    assert beat(conn, fence) == "locked"
    session.execute(COMMIT, fence)
    assert beat(conn, fence) == "locked"

    session.execute("COMMIT")

    assert what_happened(conn) == ("succeeded", 1, 1)


def test_the_ledger_itself_takes_a_fenced_entry(conn: Conn, session: Conn, fence: Fence) -> None:
    session.execute("BEGIN")
    session.execute(FENCE, fence)
    session.execute(EFFECT)
    session.execute(
        "INSERT INTO faultline.ledger (job_id, fencing_token, lease_id) VALUES (%s, %s, %s)", fence
    )
    session.execute("COMMIT")

    assert what_happened(conn) == ("succeeded", 1, 1)


def test_an_expired_job_is_not_claimed_while_it_is_fenced(
    conn: Conn, session: Conn, fence: Fence
) -> None:
    session.execute("BEGIN")
    session.execute(FENCE, fence)

    taken = conn.execute("SELECT FROM faultline.reconcile(dead_workers => '{first}')").fetchall()

    assert taken == []
    session.execute(COMMIT, fence)
    session.execute("COMMIT")
    assert what_happened(conn) == ("succeeded", 1, 0)


def test_a_stale_lease_is_refused_before_the_user_writes(
    conn: Conn, session: Conn, fence: Fence
) -> None:
    give_to_another(conn, fence)

    with pytest.raises(psycopg.Error) as refusal:
        fenced_write(session, fence)

    assert refusal.value.sqlstate == "FL001"
    session.execute("COMMIT")
    assert what_happened(conn) == ("running", 0, 0)


def test_a_lease_that_expires_during_the_transaction_rolls_back_the_users_write(
    conn: Conn, session: Conn, fence: Fence
) -> None:
    session.execute("BEGIN")
    session.execute(FENCE, fence)
    session.execute(EFFECT)
    session.execute("UPDATE faultline.jobs SET lease_expires_at = clock_timestamp()")

    with pytest.raises(psycopg.Error) as refusal:
        session.execute(COMMIT, fence)

    assert refusal.value.sqlstate == "FL001"
    assert '"lease_expired"' in (refusal.value.diag.message_detail or "")
    session.execute("COMMIT")
    assert what_happened(conn) == ("running", 0, 0)


def test_a_commit_without_the_fence_is_refused_with_a_hint(
    conn: Conn, session: Conn, fence: Fence
) -> None:
    session.execute("BEGIN")
    session.execute(EFFECT)

    with pytest.raises(psycopg.Error) as refusal:
        session.execute(COMMIT, fence)

    assert refusal.value.sqlstate == "FL007"
    assert "faultline.assert_fence" in (refusal.value.diag.message_hint or "")
    session.execute("COMMIT")
    assert what_happened(conn) == ("running", 0, 0)


def test_the_fence_of_one_transaction_does_not_hold_in_the_next(
    conn: Conn, session: Conn, fence: Fence
) -> None:
    session.execute("BEGIN")
    session.execute(FENCE, fence)
    session.execute("COMMIT")

    with pytest.raises(psycopg.Error) as refusal:
        session.execute(COMMIT, fence)

    assert refusal.value.sqlstate == "FL007"
    assert what_happened(conn) == ("running", 0, 0)


def test_a_heartbeat_between_snapshot_and_fence_causes_a_retry_and_no_stale_lease(
    conn: Conn, session: Conn, fence: Fence
) -> None:
    snapshot(session)
    assert beat(conn, fence) == "renewed"

    with pytest.raises(errors.SerializationFailure):
        session.execute(FENCE, fence)

    session.execute("ROLLBACK")
    fenced_write(session, fence)
    assert what_happened(conn) == ("succeeded", 1, 1)


def test_a_job_lost_between_snapshot_and_fence_is_found_stale_by_the_retry(
    conn: Conn, session: Conn, fence: Fence
) -> None:
    snapshot(session)
    current = give_to_another(conn, fence)
    with pytest.raises(errors.SerializationFailure):
        session.execute(FENCE, fence)
    session.execute("ROLLBACK")

    with pytest.raises(psycopg.Error) as refusal:
        fenced_write(session, fence)

    assert refusal.value.sqlstate == "FL001"
    session.execute("ROLLBACK")
    fenced_write(session, current)
    assert what_happened(conn) == ("succeeded", 1, 1)


def test_a_fence_undone_by_a_savepoint_does_not_count(
    conn: Conn, session: Conn, fence: Fence
) -> None:
    session.execute("BEGIN")
    session.execute("SAVEPOINT s")
    session.execute(FENCE, fence)
    session.execute("ROLLBACK TO SAVEPOINT s; RELEASE SAVEPOINT s")

    with pytest.raises(psycopg.Error) as refusal:
        session.execute(COMMIT, fence)

    assert refusal.value.sqlstate == "FL007"


def test_one_transaction_may_commit_two_jobs_that_it_has_locked(
    conn: Conn, session: Conn, fence: Fence
) -> None:
    conn.execute("SELECT faultline.enqueue('task')")
    other = claim(conn)

    with session.transaction():
        session.execute(FENCE, fence)
        session.execute(FENCE, other)
        session.execute(COMMIT, fence)
        session.execute(COMMIT, other)

    assert conn.execute("SELECT count(*) FROM faultline.ledger").fetchone() == (2,)
