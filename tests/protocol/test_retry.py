"""faultline.retry queues a failed job again; its former holders stay stale."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from .steps import (
    Connection,
    cancel,
    claim,
    claim_new,
    commit,
    enqueue,
    expire,
    job,
    logged,
    reconcile,
    refused,
    rows,
    set_job,
    state,
    value,
)


def retry(conn: Connection, job_id: UUID) -> str:
    return str(value(conn, "SELECT faultline.retry(%s)", job_id))


def test_a_dead_job_is_queued_again_with_all_its_attempts(conn: Connection) -> None:
    lease = claim_new(conn, max_attempts=1)
    expire(conn, lease)
    reconcile(conn)
    assert retry(conn, lease.job_id) == "queued"
    stored = job(conn, lease.job_id)
    assert (stored["state"], stored["attempts"]) == ("queued", 0)
    assert (stored["failed_reason"], stored["finished_at"]) == (None, None)
    assert claim(conn).job_id == lease.job_id


def test_a_job_that_waited_for_later_and_was_cancelled_runs_at_once(conn: Connection) -> None:
    job_id, _ = enqueue(conn, run_at="2999-01-01")
    cancel(conn, job_id)
    retry(conn, job_id)
    assert claim(conn).job_id == job_id


@pytest.mark.parametrize("call", ["retry(%s)", "retry_many(ARRAY[%s])"])
def test_a_job_that_expired_and_is_retried_runs_however_late(conn: Connection, call: str) -> None:
    job_id, _ = enqueue(conn)
    set_job(conn, job_id, "expires_at = clock_timestamp() - interval '1 second'")
    assert rows(conn, "SELECT FROM faultline.claim('w', '{default}', 1, '1 minute')") == []
    assert job(conn, job_id)["failed_reason"] == "expired"
    conn.execute(f"SELECT faultline.{call}", [job_id])
    assert claim(conn).job_id == job_id


def test_a_retried_job_continues_from_its_last_token(conn: Connection) -> None:
    lease = claim_new(conn)
    cancel(conn, lease.job_id)
    retry(conn, lease.job_id)
    assert claim(conn, worker="second").token == 2


def test_a_former_holder_cannot_commit_after_a_retry(conn: Connection) -> None:
    lease = claim_new(conn)
    cancel(conn, lease.job_id)
    retry(conn, lease.job_id)
    with refused("FL001", reason="not_running"):
        commit(conn, lease)
    claim(conn, worker="second")
    with refused("FL001", reason="token_mismatch", current_token=2):
        commit(conn, lease)


def test_a_retry_is_logged(conn: Connection) -> None:
    job_id, _ = enqueue(conn)
    cancel(conn, job_id)
    retry(conn, job_id)
    assert [entry[3] for entry in logged(conn, job_id)] == ["cancelled", "retried"]


def test_a_job_that_succeeded_is_never_run_again(conn: Connection) -> None:
    lease = claim_new(conn)
    commit(conn, lease)
    with refused("FL002"):
        retry(conn, lease.job_id)
    assert state(conn, lease.job_id) == "succeeded"


def test_a_job_that_has_not_ended_is_left_alone(conn: Connection) -> None:
    waiting, _ = enqueue(conn, run_at="2999-01-01")
    running = claim_new(conn)
    assert retry(conn, waiting) == "queued"
    assert retry(conn, running.job_id) == "running"
    assert job(conn, running.job_id)["attempts"] == 1
    assert logged(conn, waiting) == logged(conn, running.job_id) == []


def test_an_unknown_job_cannot_be_retried(conn: Connection) -> None:
    with refused("FL006"):
        retry(conn, uuid4())
