"""faultline.heartbeat renews its caller's leases and never waits for a lock."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from .steps import (
    Connect,
    Connection,
    Lease,
    cancel,
    claim_new,
    claim_new_batch,
    commit,
    expire,
    heartbeat,
    is_at_least_from_now,
    job,
    never_waits,
    reconcile,
    rows,
    take_over,
    value,
)


def expiry(conn: Connection, lease: Lease) -> Any:
    return job(conn, lease.job_id)["lease_expires_at"]


def register(conn: Connection, worker: str, *, since: str) -> None:
    conn.execute(
        "INSERT INTO faultline.workers (id, host, pid, queues, holds_locks, last_heartbeat_at,"
        " lost_at) VALUES (%s, 'h', 1, '{}', false, %s, %s)",
        [worker, since, since],
    )


def test_a_lease_that_is_held_is_renewed(conn: Connection) -> None:
    lease = claim_new(conn)
    assert heartbeat(conn, lease, lease="1 hour") == ["renewed"]
    assert is_at_least_from_now(conn, expiry(conn, lease), "59 minutes")
    assert job(conn, lease.job_id)["lease_seconds"] == 3600


def test_a_lease_that_expired_but_was_not_taken_over_is_renewed(conn: Connection) -> None:
    lease = claim_new(conn)
    expire(conn, lease)
    assert heartbeat(conn, lease) == ["renewed"]
    commit(conn, lease)


def test_a_locked_job_is_reported_as_locked_without_waiting(
    conn: Connection, connect: Connect
) -> None:
    held, free = claim_new_batch(conn, 2)
    before = expiry(conn, held)
    holder = connect()
    holder.execute("BEGIN")
    holder.execute("SELECT FROM faultline.jobs WHERE id = %s FOR UPDATE", [held.job_id])
    assert heartbeat(never_waits(conn), held, free) == ["locked", "renewed"]
    assert expiry(conn, held) == before


def test_a_job_whose_commit_is_in_flight_is_locked_and_not_lost(
    conn: Connection, connect: Connect
) -> None:
    lease = claim_new(conn)
    committer = connect()
    committer.execute("BEGIN")
    commit(committer, lease)
    assert heartbeat(never_waits(conn), lease) == ["locked"]


def test_a_locked_job_that_is_no_longer_the_callers_is_lost(
    conn: Connection, connect: Connect
) -> None:
    lease = claim_new(conn)
    successor = take_over(conn, lease)
    holder = connect()
    holder.execute("BEGIN")
    holder.execute("SELECT FROM faultline.jobs WHERE id = %s FOR UPDATE", [successor.job_id])
    assert heartbeat(never_waits(conn), lease) == ["lost"]


def test_a_lease_that_was_taken_over_is_lost_and_the_new_one_is_not_renewed(
    conn: Connection,
) -> None:
    lease = claim_new(conn)
    successor = take_over(conn, lease)
    before = expiry(conn, successor)
    assert heartbeat(conn, lease) == ["lost"]
    assert expiry(conn, successor) == before


@pytest.mark.parametrize(
    "wrong", [{"token": 2}, {"token": 0}, {"lease_id": uuid4()}, {"job_id": uuid4()}]
)
def test_a_lease_that_is_wrong_in_any_part_is_lost(conn: Connection, wrong: dict[str, Any]) -> None:
    lease = claim_new(conn)
    before = expiry(conn, lease)
    assert heartbeat(conn, lease._replace(**wrong)) == ["lost"]
    assert expiry(conn, lease) == before


def test_a_job_that_was_cancelled_is_lost(conn: Connection) -> None:
    lease = claim_new(conn)
    cancel(conn, lease.job_id)
    assert heartbeat(conn, lease) == ["lost"]


def test_a_job_that_was_released_is_lost_even_before_it_is_claimed_again(
    conn: Connection,
) -> None:
    lease = claim_new(conn)
    expire(conn, lease)
    reconcile(conn)
    assert heartbeat(conn, lease) == ["lost"]


def test_a_job_that_succeeded_is_lost(conn: Connection) -> None:
    lease = claim_new(conn)
    commit(conn, lease)
    assert heartbeat(conn, lease) == ["lost"]


def test_one_call_answers_for_each_lease_on_its_own(conn: Connection) -> None:
    mine, cancelled, foreign = claim_new_batch(conn, 3)
    cancel(conn, cancelled.job_id)
    outcomes = heartbeat(conn, mine, cancelled, foreign._replace(lease_id=uuid4()))
    assert outcomes == ["renewed", "lost", "lost"]


def test_a_worker_without_jobs_still_sends_heartbeats(conn: Connection) -> None:
    register(conn, "first", since="2001-01-01")
    register(conn, "second", since="2001-01-01")
    assert rows(conn, "SELECT * FROM faultline.heartbeat('first')") == []
    alive = "SELECT id FROM faultline.workers WHERE last_heartbeat_at > '2002-01-01'"
    assert rows(conn, alive) == [("first",)]


def test_a_worker_that_was_marked_lost_is_not_after_its_heartbeat(conn: Connection) -> None:
    register(conn, "first", since="2001-01-01")
    conn.execute("SELECT faultline.heartbeat('first')")
    assert value(conn, "SELECT lost_at FROM faultline.workers") is None
