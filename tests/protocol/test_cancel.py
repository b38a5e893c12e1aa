"""faultline.cancel ends a job that has not ended, and returns its state."""

from __future__ import annotations

from uuid import uuid4

from .steps import (
    Connect,
    Connection,
    cancel,
    claim_batch,
    claim_new,
    commit,
    enqueue,
    entries,
    job,
    logged,
    refused,
    start_and_wait_until_blocked,
    state,
    value,
)


def test_a_waiting_job_is_cancelled_and_never_runs(conn: Connection) -> None:
    job_id, _ = enqueue(conn)
    assert cancel(conn, job_id) == "failed"
    stored = job(conn, job_id)
    assert (stored["failed_reason"], stored["finished_at"] is None) == ("cancelled", False)
    assert claim_batch(conn) == []


def test_a_running_job_is_cancelled_and_its_worker_cannot_commit(conn: Connection) -> None:
    lease = claim_new(conn)
    assert cancel(conn, lease.job_id) == "failed"
    with refused("FL001", reason="not_running", current_token=1):
        commit(conn, lease)


def test_a_cancelled_job_has_no_owner(conn: Connection) -> None:
    lease = claim_new(conn)
    cancel(conn, lease.job_id)
    stored = job(conn, lease.job_id)
    assert (stored["lease_owner"], stored["lease_expires_at"]) == (None, None)


def test_the_reason_is_kept_with_the_job_and_in_the_log(conn: Connection) -> None:
    lease = claim_new(conn, worker="first")
    value(conn, "SELECT faultline.cancel(%s, 'sent by mistake')", lease.job_id)
    assert job(conn, lease.job_id)["last_error"] == "sent by mistake"
    assert logged(conn, lease.job_id) == [(1, 1, "first", "cancelled", "sent by mistake")]


def test_a_cancel_without_a_reason_keeps_the_error_of_the_last_attempt(conn: Connection) -> None:
    lease = claim_new(conn)
    conn.execute("SELECT faultline.fail(%s, %s, %s, 'no such address')", lease)
    cancel(conn, lease.job_id)
    assert job(conn, lease.job_id)["last_error"] == "no such address"


def test_a_job_that_succeeded_stays_so(conn: Connection) -> None:
    lease = claim_new(conn)
    commit(conn, lease)
    assert cancel(conn, lease.job_id) == "succeeded"
    assert (state(conn, lease.job_id), logged(conn, lease.job_id)) == ("succeeded", [])


def test_a_job_that_is_dead_keeps_its_first_reason(conn: Connection) -> None:
    lease = claim_new(conn)
    conn.execute("SELECT faultline.fail(%s, %s, %s, 'no', reason => 'rejected')", lease)
    assert cancel(conn, lease.job_id) == "failed"
    assert job(conn, lease.job_id)["failed_reason"] == "rejected"
    assert len(logged(conn, lease.job_id)) == 1


def test_an_unknown_job_cannot_be_cancelled(conn: Connection) -> None:
    with refused("FL006"):
        cancel(conn, uuid4())


def test_a_cancel_that_waited_for_a_commit_leaves_the_job_succeeded(
    conn: Connection, connect: Connect
) -> None:
    lease = claim_new(conn)
    worker, operator = connect(), connect()
    worker.execute("BEGIN")
    commit(worker, lease)
    answer = start_and_wait_until_blocked(conn, operator, lambda c: cancel(c, lease.job_id))
    worker.execute("COMMIT")
    assert answer.result() == "succeeded"
    assert entries(conn) == [lease]
