"""faultline.release requeues a job without counting the attempt."""

from __future__ import annotations

from uuid import uuid4

from .steps import (
    Connect,
    Connection,
    claim,
    claim_new,
    commit,
    enqueue,
    expire,
    is_refused_after_waiting_for_a_takeover,
    job,
    logged,
    make_due,
    reconcile,
    refused,
    release,
    set_job,
    state,
    take_over,
)


def test_a_release_does_not_count_as_an_attempt(conn: Connection) -> None:
    lease = claim_new(conn)
    release(conn, lease)
    stored = job(conn, lease.job_id)
    assert (stored["state"], stored["attempts"]) == ("queued", 0)
    assert (stored["lease_owner"], stored["lease_expires_at"]) == (None, None)


def test_a_job_with_one_attempt_survives_any_number_of_releases(conn: Connection) -> None:
    enqueue(conn, max_attempts=1)
    for _ in range(3):
        release(conn, claim(conn))
    assert claim(conn).token == 4


def test_a_released_job_keeps_its_place_in_the_queue(conn: Connection) -> None:
    older, _ = enqueue(conn)
    newer, _ = enqueue(conn)
    make_due(conn, older, ago="2 hours")
    make_due(conn, newer, ago="1 hour")
    release(conn, claim(conn))
    assert [claim(conn).job_id, claim(conn).job_id] == [older, newer]


def test_a_release_is_logged(conn: Connection) -> None:
    lease = claim_new(conn, worker="first")
    release(conn, lease)
    assert logged(conn, lease.job_id) == [(1, 1, "first", "released", None)]


def test_a_lease_that_expired_but_was_not_taken_over_may_be_released(conn: Connection) -> None:
    lease = claim_new(conn)
    expire(conn, lease)
    release(conn, lease)
    assert state(conn, lease.job_id) == "queued"


def test_a_worker_whose_lease_was_taken_over_cannot_release_the_job(conn: Connection) -> None:
    lease = claim_new(conn)
    take_over(conn, lease)
    with refused("FL001", reason="token_mismatch", current_token=2):
        release(conn, lease)
    assert state(conn, lease.job_id) == "running"


def test_the_right_token_with_another_lease_cannot_release_the_job(conn: Connection) -> None:
    lease = claim_new(conn)
    with refused("FL001", reason="token_mismatch"):
        release(conn, lease._replace(lease_id=uuid4()))


def test_a_job_cannot_be_released_twice(conn: Connection) -> None:
    lease = claim_new(conn)
    release(conn, lease)
    with refused("FL001", reason="not_running"):
        release(conn, lease)
    assert job(conn, lease.job_id)["attempts"] == 0


def test_a_reconciled_job_has_used_its_attempt(conn: Connection) -> None:
    lease = claim_new(conn)
    expire(conn, lease)
    reconcile(conn)
    with refused("FL001", reason="not_running"):
        release(conn, lease)
    assert job(conn, lease.job_id)["attempts"] == 1


def test_a_job_that_succeeded_cannot_be_released(conn: Connection) -> None:
    lease = claim_new(conn)
    commit(conn, lease)
    with refused("FL001", reason="already_committed"):
        release(conn, lease)


def test_a_released_job_cannot_be_committed_afterwards(conn: Connection) -> None:
    lease = claim_new(conn)
    release(conn, lease)
    with refused("FL001", reason="not_running"):
        commit(conn, lease)


def test_a_release_that_waited_for_a_takeover_is_refused(
    conn: Connection, connect: Connect
) -> None:
    is_refused_after_waiting_for_a_takeover(conn, connect, release)


def test_a_released_job_is_due_even_if_the_clock_was_set_back(conn: Connection) -> None:
    lease = claim_new(conn)
    set_job(conn, lease[0], "next_run_at = clock_timestamp() + interval '1 day'")
    release(conn, lease)
    assert claim(conn)[0] == lease[0]
