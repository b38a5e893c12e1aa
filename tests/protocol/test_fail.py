"""faultline.fail ends an attempt: the job is queued again, or failed for good."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from .steps import (
    Connect,
    Connection,
    Lease,
    cancel,
    claim,
    claim_batch,
    claim_new,
    commit,
    enqueue,
    entries,
    expire,
    is_at_least_from_now,
    is_refused_after_waiting_for_a_takeover,
    job,
    logged,
    make_due,
    one,
    reconcile,
    refused,
    state,
    take_over,
)


def fail(conn: Connection, lease: Lease, error: str = "oops", **options: Any) -> Any:
    named = "".join(f", {name} => %s" for name in options)
    call = f"SELECT state, failed_reason FROM faultline.fail(%s, %s, %s, %s{named})"
    return one(conn, call, *lease, error, *options.values())


def test_a_job_that_failed_runs_again_when_its_delay_is_over(conn: Connection) -> None:
    lease = claim_new(conn)
    assert fail(conn, lease, retry_in="1 hour") == ("queued", None)
    assert is_at_least_from_now(conn, job(conn, lease.job_id)["next_run_at"], "59 minutes")
    assert claim_batch(conn) == []
    make_due(conn, lease.job_id)
    assert claim(conn).token == 2


def test_the_answer_says_when_the_job_runs_again(conn: Connection) -> None:
    lease = claim_new(conn)
    call = "SELECT next_run_at FROM faultline.fail(%s, %s, %s, 'oops', '1 hour')"
    assert one(conn, call, *lease) == (job(conn, lease.job_id)["next_run_at"],)


def test_a_job_that_failed_keeps_its_count_of_attempts(conn: Connection) -> None:
    lease = claim_new(conn)
    fail(conn, lease)
    assert job(conn, lease.job_id)["attempts"] == 1


def test_a_job_whose_last_attempt_failed_is_dead(conn: Connection) -> None:
    enqueue(conn, max_attempts=2)
    assert fail(conn, claim(conn), retry_in="0") == ("queued", None)
    last = claim(conn)
    assert fail(conn, last, retry_in="0") == ("failed", "attempts_spent")
    assert job(conn, last.job_id)["finished_at"] is not None
    assert claim_batch(conn) == []


def test_a_job_that_failed_for_a_reason_is_dead_whatever_attempts_are_left(
    conn: Connection,
) -> None:
    lease = claim_new(conn, max_attempts=5)
    assert fail(conn, lease, reason="rejected") == ("failed", "rejected")
    assert claim_batch(conn) == []


def test_the_error_is_kept_with_the_job_and_in_the_log(conn: Connection) -> None:
    lease = claim_new(conn, worker="first")
    fail(conn, lease, "no such address")
    assert job(conn, lease.job_id)["last_error"] == "no such address"
    assert logged(conn, lease.job_id) == [(1, 1, "first", "failed", "no such address")]


def test_a_long_error_is_cut_off(conn: Connection) -> None:
    lease = claim_new(conn)
    fail(conn, lease, "x" * 10_001)
    assert job(conn, lease.job_id)["last_error"] == "x" * 10_000
    assert logged(conn, lease.job_id)[0][-1] == "x" * 10_000


def test_a_failed_job_has_no_owner(conn: Connection) -> None:
    lease = claim_new(conn)
    fail(conn, lease)
    stored = job(conn, lease.job_id)
    assert (stored["lease_owner"], stored["lease_expires_at"]) == (None, None)


def test_a_lease_that_expired_but_was_not_taken_over_may_fail_the_job(conn: Connection) -> None:
    lease = claim_new(conn)
    expire(conn, lease)
    assert fail(conn, lease) == ("queued", None)


def test_a_worker_whose_lease_was_taken_over_cannot_fail_the_job(conn: Connection) -> None:
    lease = claim_new(conn)
    take_over(conn, lease)
    with refused("FL001", reason="token_mismatch", stale_token=1, current_token=2):
        fail(conn, lease)
    assert (state(conn, lease.job_id), logged(conn, lease.job_id)[1:]) == ("running", [])


def test_the_right_token_with_another_lease_cannot_fail_the_job(conn: Connection) -> None:
    lease = claim_new(conn)
    with refused("FL001", reason="token_mismatch"):
        fail(conn, lease._replace(lease_id=uuid4()))
    assert state(conn, lease.job_id) == "running"


def test_a_job_that_was_released_already_cannot_fail(conn: Connection) -> None:
    lease = claim_new(conn)
    expire(conn, lease)
    reconcile(conn)
    with refused("FL001", reason="not_running"):
        fail(conn, lease)


def test_a_cancelled_job_cannot_be_queued_again_by_failing_it(conn: Connection) -> None:
    lease = claim_new(conn)
    cancel(conn, lease.job_id)
    with refused("FL001", reason="not_running"):
        fail(conn, lease, retry_in="0")
    assert job(conn, lease.job_id)["failed_reason"] == "cancelled"


def test_a_job_that_succeeded_cannot_fail(conn: Connection) -> None:
    lease = claim_new(conn)
    commit(conn, lease)
    with refused("FL001", reason="already_committed"):
        fail(conn, lease)


def test_a_job_that_failed_cannot_be_committed_afterwards(conn: Connection) -> None:
    lease = claim_new(conn)
    fail(conn, lease)
    with refused("FL001", reason="not_running"):
        commit(conn, lease)
    assert entries(conn) == []


def test_an_unknown_job_cannot_fail(conn: Connection) -> None:
    with refused("FL001", reason="unknown_job"):
        fail(conn, Lease(uuid4(), 1, uuid4()))


def test_a_failure_that_waited_for_a_takeover_is_refused(
    conn: Connection, connect: Connect
) -> None:
    is_refused_after_waiting_for_a_takeover(conn, connect, fail)


@pytest.mark.parametrize("reason", ["cancelled", "attempts_spent", "", "r" * 101])
def test_a_worker_cannot_give_a_reason_that_faultline_sets_itself(
    conn: Connection, reason: str
) -> None:
    lease = claim_new(conn)
    with refused("FL005"):
        fail(conn, lease, reason=reason)
    assert state(conn, lease.job_id) == "running"
