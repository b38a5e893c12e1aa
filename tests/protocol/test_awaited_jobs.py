"""The end of an awaited job sends a notification, whichever function ends the job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from .steps import (
    Connect,
    Connection,
    Lease,
    cancel,
    channel_of,
    claim,
    claim_new,
    commit,
    enqueue,
    expire,
    reconcile,
    rows,
    value,
)

AWAITED = "SELECT awaited FROM faultline.jobs WHERE id = %s"


def listen(conn: Connection, channel: str = "faultline_results") -> list[str]:
    payloads: list[str] = []
    conn.add_notify_handler(lambda notice: payloads.append(notice.payload))
    conn.execute(f"LISTEN {channel}")
    return payloads


def await_jobs(conn: Connection, *job_ids: UUID) -> None:
    conn.execute("SELECT faultline.await_jobs(%s)", [list(job_ids)])


def outcome(conn: Connection, job_id: UUID) -> tuple[Any, ...]:
    [found] = rows(conn, "SELECT * FROM faultline.outcomes(%s)", [job_id])
    assert found[0] == job_id
    return tuple(found[1:])


def commit_by_insert(conn: Connection, lease: Lease) -> None:
    conn.execute(
        "INSERT INTO faultline.ledger (job_id, fencing_token, lease_id) VALUES (%s, %s, %s)", lease
    )


def commit_many(conn: Connection, lease: Lease) -> None:
    conn.execute("SELECT faultline.commit_many(ARRAY[%s], ARRAY[%s], ARRAY[%s])", lease)


def fail(conn: Connection, lease: Lease) -> None:
    conn.execute("SELECT faultline.fail(%s, %s, %s, 'oops', reason => 'rejected')", lease)


def cancel_it(conn: Connection, lease: Lease) -> None:
    cancel(conn, lease.job_id)


def poison(conn: Connection, lease: Lease) -> None:
    conn.execute("UPDATE faultline.jobs SET max_attempts = 1 WHERE id = %s", [lease.job_id])
    expire(conn, lease)
    reconcile(conn)


def spend_its_tokens(conn: Connection, lease: Lease) -> None:
    """Queue it with the last token of its epoch: the next claim fails it."""
    conn.execute("SELECT faultline.release(%s, %s, %s)", lease)
    with conn.transaction():
        conn.execute("SET LOCAL session_replication_role = replica")
        conn.execute(
            "UPDATE faultline.jobs SET fencing_token = fencing_token | 4194303 WHERE id = %s",
            [lease.job_id],
        )
    rows(conn, "SELECT * FROM faultline.claim('second')")


def expire_unstarted(conn: Connection, lease: Lease) -> None:
    """Let it expire before its first attempt, in a queue that no worker serves."""
    conn.execute("SELECT faultline.release(%s, %s, %s)", lease)
    conn.execute(
        "UPDATE faultline.jobs SET expires_at = clock_timestamp() - interval '1 s' WHERE id = %s",
        [lease.job_id],
    )
    conn.execute("SELECT faultline.fail_expired()")


ENDS: dict[str, Callable[[Connection, Lease], Any]] = {
    "commit": commit,
    "insert": commit_by_insert,
    "commit_many": commit_many,
    "fail": fail,
    "cancel": cancel_it,
    "reconcile": poison,
    "claim": spend_its_tokens,
    "expiry": expire_unstarted,
}


@pytest.mark.parametrize("how", ENDS)
def test_every_end_of_an_awaited_job_sends_one_notification_with_its_id(
    conn: Connection, how: str
) -> None:
    lease = claim_new(conn)
    payloads = listen(conn)
    await_jobs(conn, lease.job_id)
    assert value(conn, AWAITED, lease.job_id) is True
    ENDS[how](conn, lease)
    conn.execute("SELECT 1")
    assert payloads == [str(lease.job_id)]
    assert outcome(conn, lease.job_id)[0] in ("succeeded", "failed")
    assert value(conn, AWAITED, lease.job_id) is False


@pytest.mark.parametrize("how", ENDS)
def test_the_end_of_a_job_that_is_not_awaited_sends_none(conn: Connection, how: str) -> None:
    lease = claim_new(conn)
    payloads = listen(conn)
    ENDS[how](conn, lease)
    conn.execute("SELECT 1")
    assert payloads == []


def test_a_retry_a_release_and_a_claim_keep_the_mark_and_send_nothing(conn: Connection) -> None:
    lease = claim_new(conn)
    payloads = listen(conn)
    await_jobs(conn, lease.job_id)
    conn.execute("SELECT faultline.fail(%s, %s, %s, 'oops', '0 seconds')", lease)
    lease = claim(conn)
    conn.execute("SELECT faultline.release(%s, %s, %s)", lease)
    assert value(conn, AWAITED, lease.job_id) is True
    assert payloads == []


def test_a_failed_job_that_is_retried_is_awaited_no_more(conn: Connection) -> None:
    lease = claim_new(conn)
    await_jobs(conn, lease.job_id)
    fail(conn, lease)
    payloads = listen(conn)
    conn.execute("SELECT faultline.retry(%s)", [lease.job_id])
    commit(conn, claim(conn))
    assert payloads == []


def test_an_end_that_is_rolled_back_sends_nothing_and_keeps_the_mark(conn: Connection) -> None:
    lease = claim_new(conn)
    payloads = listen(conn)
    await_jobs(conn, lease.job_id)
    with conn.transaction(force_rollback=True):
        commit(conn, lease)
    assert payloads == []
    assert value(conn, AWAITED, lease.job_id) is True


def test_notifications_of_ends_can_be_switched_off_for_a_prepared_transaction(
    conn: Connection,
) -> None:
    lease = claim_new(conn)
    payloads = listen(conn)
    await_jobs(conn, lease.job_id)
    conn.execute("SET faultline.notify = 'off'")
    commit(conn, lease)
    assert payloads == []
    assert outcome(conn, lease.job_id)[0] == "succeeded"


def test_a_job_that_is_locked_is_left_unmarked_without_waiting(
    conn: Connection, connect: Connect
) -> None:
    lease, other = claim_new(conn), connect()
    with other.transaction():
        commit(other, lease)
        await_jobs(conn, lease.job_id)
        assert outcome(conn, lease.job_id) == ("running", None, None, None, False)
    assert outcome(conn, lease.job_id)[0] == "succeeded"


def test_a_job_in_an_open_transaction_of_its_handler_can_be_marked(
    conn: Connection, connect: Connect
) -> None:
    lease, other = claim_new(conn), connect()
    payloads = listen(conn)
    with other.transaction():
        other.execute("SELECT faultline.open_transaction(%s, %s, %s)", lease)
        await_jobs(conn, lease.job_id)
        assert value(conn, AWAITED, lease.job_id) is True
        other.execute("SELECT faultline.close_transaction(%s, %s, %s, '7')", lease)
    assert outcome(conn, lease.job_id) == ("succeeded", None, None, 7, False)
    assert payloads == [str(lease.job_id)]


def test_marking_a_due_job_notifies_its_workers_which_may_have_skipped_it(
    conn: Connection,
) -> None:
    job_id, _ = enqueue(conn, queue="mail")
    later, _ = enqueue(conn, queue="later", run_at="2999-01-01")
    conn.execute("SELECT faultline.announce_idle('w', '{mail,later}')")
    payloads = listen(conn, channel_of("w"))
    await_jobs(conn, job_id, later)
    assert payloads == ["mail"]
    await_jobs(conn, job_id, later)
    assert payloads == ["mail"]


def test_marking_changes_nothing_but_the_mark(conn: Connection) -> None:
    lease = claim_new(conn)
    row = "SELECT to_jsonb(j) - 'awaited' FROM faultline.jobs AS j WHERE id = %s"
    before = value(conn, row, lease.job_id)
    await_jobs(conn, lease.job_id)
    assert value(conn, row, lease.job_id) == before


def test_outcomes_show_results_errors_and_what_does_not_exist(conn: Connection) -> None:
    done, failed, waiting = claim_new(conn), claim_new(conn), enqueue(conn)[0]
    conn.execute("""SELECT faultline.commit(%s, %s, %s, '{"a": 1}')""", done)
    fail(conn, failed)
    unknown = UUID(int=7)
    assert outcome(conn, done.job_id) == ("succeeded", None, None, {"a": 1}, False)
    assert outcome(conn, failed.job_id) == ("failed", "rejected", "oops", None, False)
    assert outcome(conn, waiting) == ("queued", None, None, None, False)
    assert outcome(conn, unknown) == (None, None, None, None, False)


def test_the_error_of_a_job_that_will_run_again_is_not_an_outcome(conn: Connection) -> None:
    lease = claim_new(conn)
    conn.execute("SELECT faultline.fail(%s, %s, %s, 'oops', '1 hour')", lease)
    assert outcome(conn, lease.job_id) == ("queued", None, None, None, False)


def test_the_ledger_knows_the_result_of_a_purged_job(conn: Connection) -> None:
    lease = claim_new(conn)
    conn.execute("SELECT faultline.commit(%s, %s, %s, '5')", lease)
    conn.execute("DELETE FROM faultline.jobs WHERE id = %s", [lease.job_id])
    assert outcome(conn, lease.job_id) == ("succeeded", None, None, 5, False)


def test_a_job_cannot_be_prepared_after_its_notification(conn: Connection) -> None:
    """The reason for the switch: PostgreSQL refuses it, so nothing is committed."""
    if not int(value(conn, "SHOW max_prepared_transactions")):
        pytest.skip("the server allows no prepared transactions")
    lease = claim_new(conn)
    await_jobs(conn, lease.job_id)
    conn.execute("BEGIN")
    commit(conn, lease)
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        conn.execute("PREPARE TRANSACTION 'awaited'")
    assert outcome(conn, lease.job_id)[0] == "running"
