"""faultline.snooze queues a job again for later without counting the attempt."""

from __future__ import annotations

from datetime import datetime
from uuid import uuid4

import pytest

from .steps import (
    Connect,
    Connection,
    Lease,
    claim,
    claim_batch,
    claim_new,
    commit,
    enqueue,
    expire,
    is_at_least_from_now,
    is_refused_after_waiting_for_a_takeover,
    job,
    logged,
    make_due,
    one,
    reconcile,
    refused,
    release,
    rows,
    set_job,
    state,
    take_over,
    value,
)


def snooze(
    conn: Connection, lease: Lease, delay: str = "1 minute", reason: str | None = None
) -> tuple[datetime, int]:
    call = "SELECT next_run_at, snoozes FROM faultline.snooze(%s, %s, %s, %s, %s)"
    found: tuple[datetime, int] = one(conn, call, *lease, delay, reason)
    return found


def test_a_snooze_uses_no_attempt_and_waits(conn: Connection) -> None:
    lease = claim_new(conn)
    next_run_at, snoozes = snooze(conn, lease, "1 hour")
    stored = job(conn, lease.job_id)
    assert (stored["state"], stored["attempts"], snoozes) == ("queued", 0, 1)
    assert (stored["lease_owner"], stored["lease_expires_at"]) == (None, None)
    assert stored["next_run_at"] == next_run_at
    assert is_at_least_from_now(conn, next_run_at, "59 minutes")
    assert claim_batch(conn) == []


def test_a_job_with_one_attempt_survives_any_number_of_snoozes(conn: Connection) -> None:
    job_id, _ = enqueue(conn, max_attempts=1)
    for number in range(1, 4):
        assert snooze(conn, claim(conn))[1] == number
        make_due(conn, job_id)
    assert claim(conn).token == 4


def test_a_snooze_is_logged_with_its_reason(conn: Connection) -> None:
    lease = claim_new(conn, worker="first")
    snooze(conn, lease, reason="the bank is closed")
    assert logged(conn, lease.job_id) == [(1, 1, "first", "snoozed", "the bank is closed")]


@pytest.mark.parametrize("delay", ["0", "-1 hour", "10 milliseconds"])
def test_a_snooze_lasts_a_second_at_least(conn: Connection, delay: str) -> None:
    lease = claim_new(conn)
    before = value(conn, "SELECT clock_timestamp()")
    assert (snooze(conn, lease, delay)[0] - before).total_seconds() >= 1


@pytest.mark.parametrize("delay", ["101 years", "infinity", None])
def test_a_delay_out_of_range_is_refused_and_the_job_stays(
    conn: Connection, delay: str | None
) -> None:
    if delay == "infinity" and conn.info.server_version < 170000:
        pytest.skip("this server has no infinite intervals")
    lease = claim_new(conn)
    with refused("FL005"):
        snooze(conn, lease, delay)  # type: ignore[arg-type]
    assert state(conn, lease.job_id) == "running"
    assert logged(conn, lease.job_id) == []


def test_a_worker_whose_lease_was_taken_over_cannot_snooze_the_job(conn: Connection) -> None:
    lease = claim_new(conn)
    take_over(conn, lease)
    with refused("FL001", reason="token_mismatch", current_token=2):
        snooze(conn, lease)
    assert state(conn, lease.job_id) == "running"


def test_the_right_token_with_another_lease_cannot_snooze_the_job(conn: Connection) -> None:
    lease = claim_new(conn)
    with refused("FL001", reason="token_mismatch"):
        snooze(conn, lease._replace(lease_id=uuid4()))


def test_a_lease_that_expired_but_was_not_taken_over_may_be_snoozed(conn: Connection) -> None:
    lease = claim_new(conn)
    expire(conn, lease)
    snooze(conn, lease)
    assert state(conn, lease.job_id) == "queued"


def test_a_job_cannot_be_snoozed_twice(conn: Connection) -> None:
    lease = claim_new(conn)
    snooze(conn, lease)
    with refused("FL001", reason="not_running"):
        snooze(conn, lease)
    assert job(conn, lease.job_id)["attempts"] == 0


def test_a_job_that_succeeded_cannot_be_snoozed(conn: Connection) -> None:
    lease = claim_new(conn)
    commit(conn, lease)
    with refused("FL001", reason="already_committed"):
        snooze(conn, lease)


def test_a_snoozed_job_cannot_be_committed_afterwards(conn: Connection) -> None:
    lease = claim_new(conn)
    snooze(conn, lease)
    with refused("FL001", reason="not_running"):
        commit(conn, lease)


def test_a_snooze_that_waited_for_a_takeover_is_refused(conn: Connection, connect: Connect) -> None:
    is_refused_after_waiting_for_a_takeover(conn, connect, snooze)


def test_an_endless_snooze_keeps_100_rows_and_the_whole_count(conn: Connection) -> None:
    job_id, _ = enqueue(conn)
    release(conn, claim(conn))
    for number in range(1, 105):
        _, snoozes = snooze(conn, claim(conn), reason=f"no {number}")
        assert snoozes == number
        make_due(conn, job_id)
    kept = rows(
        conn,
        "SELECT outcome, error, times FROM faultline.attempts_log WHERE job_id = %s ORDER BY id",
        job_id,
    )
    assert len(kept) == 101
    assert kept[:3] == [("released", None, 1), ("snoozed", "no 5", 5), ("snoozed", "no 6", 1)]
    assert kept[-1] == ("snoozed", "no 104", 1)


def test_a_snoozed_job_that_has_used_no_attempt_expires(conn: Connection) -> None:
    lease = claim_new(conn)
    set_job(conn, lease.job_id, "expires_at = clock_timestamp() + interval '1 hour'")
    snooze(conn, lease, "2 hours")
    set_job(conn, lease.job_id, "expires_at = clock_timestamp() - interval '1 second'")
    assert rows(conn, "SELECT faultline.fail_expired()") == [(lease.job_id,)]
    assert (state(conn, lease.job_id), job(conn, lease.job_id)["failed_reason"]) == (
        "failed",
        "expired",
    )


def test_a_snooze_leaves_former_failures_and_crashes_counted_apart(conn: Connection) -> None:
    lease = claim_new(conn)
    expire(conn, lease)
    reconcile(conn)  # its worker crashed
    rows(conn, "SELECT faultline.fail(%s, %s, %s, 'boom', '0')", *claim(conn))
    assert (job(conn, lease.job_id)["attempts"], job(conn, lease.job_id)["crashes"]) == (2, 1)
    snooze(conn, claim(conn))
    stored = job(conn, lease.job_id)
    assert (stored["attempts"], stored["crashes"]) == (2, 1)
    assert stored["last_error"] is not None  # of the failure, not of the snooze
    outcomes = [outcome for _, _, _, outcome, _ in logged(conn, lease.job_id)]
    assert outcomes == ["expired", "failed", "snoozed"]
