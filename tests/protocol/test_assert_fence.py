"""faultline.assert_fence keeps the job for its caller until the transaction ends."""

from __future__ import annotations

from uuid import uuid4

import psycopg
import pytest

from .steps import (
    Connect,
    Connection,
    assert_fence,
    begin_fenced,
    cancel,
    claim_batch,
    claim_new,
    claim_new_batch,
    commit,
    entries,
    expire,
    heartbeat,
    never_waits,
    reconcile,
    refused,
    start_and_wait_until_blocked,
    state,
    take_over,
    value,
)

ABOVE_READ_COMMITTED = ["REPEATABLE READ", "SERIALIZABLE"]


def test_the_holder_of_a_lease_passes(conn: Connection) -> None:
    assert_fence(conn, claim_new(conn))


def test_a_job_that_does_not_exist_is_refused(conn: Connection) -> None:
    unknown = claim_new(conn)._replace(job_id=uuid4())
    with refused("FL001", reason="unknown_job", job_id=str(unknown.job_id), current_token=None):
        assert_fence(conn, unknown)


def test_a_token_that_was_superseded_is_refused(conn: Connection) -> None:
    lease = claim_new(conn)
    take_over(conn, lease)
    with refused("FL001", reason="token_mismatch", stale_token=1, current_token=2):
        assert_fence(conn, lease)


def test_the_right_token_with_another_lease_is_refused(conn: Connection) -> None:
    lease = claim_new(conn)._replace(lease_id=uuid4())
    with refused("FL001", reason="token_mismatch", current_token=1):
        assert_fence(conn, lease)


def test_a_job_that_succeeded_is_refused(conn: Connection) -> None:
    lease = claim_new(conn)
    commit(conn, lease)
    with refused("FL001", reason="already_committed"):
        assert_fence(conn, lease)


def test_a_job_that_was_cancelled_is_refused(conn: Connection) -> None:
    lease = claim_new(conn)
    cancel(conn, lease.job_id)
    with refused("FL001", reason="not_running"):
        assert_fence(conn, lease)


def test_a_lease_that_ran_out_is_refused(conn: Connection) -> None:
    lease = claim_new(conn)
    expire(conn, lease)
    with refused("FL001", reason="lease_expired"):
        assert_fence(conn, lease)


def test_heartbeats_pass_a_fence(conn: Connection, connect: Connect) -> None:
    lease = claim_new(conn)
    begin_fenced(connect(), lease)
    assert heartbeat(never_waits(conn), lease) == ["renewed"]


def test_a_fenced_job_is_not_reconciled_although_its_lease_expires(
    conn: Connection, connect: Connect
) -> None:
    lease = claim_new(conn)
    begin_fenced(connect(), lease)
    expire(conn, lease)
    assert reconcile(never_waits(conn)) == []
    assert claim_batch(conn, worker="second") == []


def test_a_fenced_job_is_reconciled_once_the_transaction_has_ended(
    conn: Connection, connect: Connect
) -> None:
    lease = claim_new(conn)
    worker = begin_fenced(connect(), lease)
    expire(conn, lease)
    worker.execute("ROLLBACK")
    assert reconcile(conn) == [lease.job_id]


def test_a_cancel_waits_for_a_fenced_job(conn: Connection, connect: Connect) -> None:
    lease = claim_new(conn)
    begin_fenced(connect(), lease)
    conn.execute("SET lock_timeout = '1ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        cancel(conn, lease.job_id)


def test_a_fenced_transaction_may_commit_its_job(conn: Connection) -> None:
    lease = claim_new(conn)
    begin_fenced(conn, lease)
    commit(conn, lease)
    conn.execute("COMMIT")
    assert state(conn, lease.job_id) == "succeeded"


@pytest.mark.parametrize("beats", [0, 1])
def test_a_fenced_job_commits_while_a_cancel_waits_for_it(
    conn: Connection, connect: Connect, beats: int
) -> None:
    lease = claim_new(conn)
    worker = begin_fenced(connect(), lease)
    answer = start_and_wait_until_blocked(conn, connect(), lambda c: cancel(c, lease.job_id))
    for _ in range(beats):
        assert heartbeat(never_waits(conn), lease) == ["renewed"]
    commit(worker, lease)
    worker.execute("COMMIT")
    assert (answer.result(), entries(conn)) == ("succeeded", [lease])


def test_the_idle_limit_holds_for_this_transaction_only(conn: Connection) -> None:
    lease = claim_new(conn)
    shown = "SELECT current_setting('idle_in_transaction_session_timeout')"
    before = value(conn, shown)
    with conn.transaction():
        conn.execute("SELECT faultline.assert_fence(%s, %s, %s, '1.5 seconds')", lease)
        assert value(conn, shown) == "1500ms"
    assert value(conn, shown) == before


def test_without_an_idle_limit_the_session_keeps_its_own(conn: Connection) -> None:
    lease = claim_new(conn)
    conn.execute("SET idle_in_transaction_session_timeout = '7s'")
    with conn.transaction():
        assert_fence(conn, lease)
        assert value(conn, "SHOW idle_in_transaction_session_timeout") == "7s"


@pytest.mark.parametrize("isolation", ABOVE_READ_COMMITTED)
def test_above_read_committed_a_fence_keeps_heartbeats_out(
    conn: Connection, connect: Connect, isolation: str
) -> None:
    lease = claim_new(conn)
    begin_fenced(connect(), lease, isolation)
    assert heartbeat(never_waits(conn), lease) == ["locked"]


@pytest.mark.parametrize("isolation", ABOVE_READ_COMMITTED)
def test_above_read_committed_a_fenced_job_commits_although_heartbeats_go_on(
    conn: Connection, connect: Connect, isolation: str
) -> None:
    lease = claim_new(conn)
    worker = begin_fenced(connect(), lease, isolation)
    heartbeat(never_waits(conn), lease)
    commit(worker, lease)
    worker.execute("COMMIT")
    assert entries(conn) == [lease]


@pytest.mark.parametrize("isolation", ABOVE_READ_COMMITTED)
def test_above_read_committed_a_job_without_a_fence_cannot_commit(
    conn: Connection, isolation: str
) -> None:
    lease = claim_new(conn)
    conn.execute(f"BEGIN ISOLATION LEVEL {isolation}")
    with refused("FL007"):
        commit(conn, lease)


def test_above_read_committed_the_fence_of_one_job_is_not_that_of_another(
    conn: Connection,
) -> None:
    fenced, other = claim_new_batch(conn, 2)
    begin_fenced(conn, fenced, "REPEATABLE READ")
    with refused("FL007"):
        commit(conn, other)


def test_above_read_committed_a_fence_does_not_outlive_its_transaction(conn: Connection) -> None:
    lease = claim_new(conn)
    begin_fenced(conn, lease, "REPEATABLE READ").execute("COMMIT")
    conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    with refused("FL007"):
        commit(conn, lease)
