"""faultline.commit: ledger entry, job state and the caller's writes are atomic."""

from __future__ import annotations

from .steps import (
    Connect,
    Connection,
    cancel,
    claim_batch,
    claim_new,
    commit,
    entries,
    expire,
    job,
    never_waits,
    one,
    reconcile,
    refused,
    rows,
    start_and_wait_until_blocked,
    state,
    take_over,
)


def test_a_commit_ends_the_job_and_enters_it_into_the_ledger(conn: Connection) -> None:
    lease = claim_new(conn)
    commit(conn, lease)
    assert state(conn, lease.job_id) == "succeeded"
    assert job(conn, lease.job_id)["finished_at"] is not None
    assert entries(conn) == [lease]


def test_the_entry_names_the_worker_and_carries_the_result(conn: Connection) -> None:
    lease = claim_new(conn, worker="first")
    conn.execute("""SELECT faultline.commit(%s, %s, %s, '{"sent": 3}')""", lease)
    entry = "SELECT worker, result FROM faultline.ledger"
    assert one(conn, entry) == ("first", {"sent": 3})


def test_a_commit_that_is_rolled_back_has_no_effect(conn: Connection) -> None:
    lease = claim_new(conn)
    conn.execute("BEGIN")
    commit(conn, lease)
    conn.execute("ROLLBACK")
    assert (state(conn, lease.job_id), entries(conn)) == ("running", [])


def test_the_callers_writes_take_effect_with_the_commit(conn: Connection, effects: str) -> None:
    lease = claim_new(conn)
    with conn.transaction():
        conn.execute(f"INSERT INTO {effects} VALUES (%s, 'first')", [lease.job_id])
        commit(conn, lease)
    assert rows(conn, f"SELECT writer FROM {effects}") == [("first",)]


def test_a_commit_that_is_sent_twice_is_refused_the_second_time(conn: Connection) -> None:
    lease = claim_new(conn)
    commit(conn, lease)
    with refused("FL001", reason="already_committed", current_token=1):
        commit(conn, lease)


def test_a_commit_that_is_sent_twice_in_one_transaction_is_refused(conn: Connection) -> None:
    lease = claim_new(conn)
    conn.execute("BEGIN")
    commit(conn, lease)
    with refused("FL001", reason="already_committed"):
        commit(conn, lease)
    conn.execute("COMMIT")
    assert (state(conn, lease.job_id), entries(conn)) == ("running", [])


def test_a_worker_whose_lease_was_taken_over_cannot_commit(conn: Connection) -> None:
    lease = claim_new(conn)
    take_over(conn, lease)
    with refused("FL001", reason="token_mismatch", stale_token=1, current_token=2):
        commit(conn, lease)


def test_the_worker_that_took_over_can_commit(conn: Connection) -> None:
    successor = take_over(conn, claim_new(conn))
    commit(conn, successor)
    assert entries(conn) == [successor]


def test_a_commit_in_flight_wins_although_its_worker_was_declared_dead(
    conn: Connection, connect: Connect
) -> None:
    lease = claim_new(conn)
    worker = connect()
    worker.execute("BEGIN")
    commit(worker, lease)
    assert reconcile(never_waits(conn), dead_workers=["first"]) == []
    worker.execute("COMMIT")
    assert entries(conn) == [lease]


def test_a_commit_that_waited_for_a_cancel_is_refused(conn: Connection, connect: Connect) -> None:
    lease = claim_new(conn)
    operator, worker = connect(), connect()
    operator.execute("BEGIN")
    cancel(operator, lease.job_id)
    late = start_and_wait_until_blocked(conn, worker, lambda c: commit(c, lease))
    operator.execute("COMMIT")
    with refused("FL001", reason="not_running"):
        late.result()
    assert entries(conn) == []


def test_a_commit_that_waited_for_a_takeover_is_refused(conn: Connection, connect: Connect) -> None:
    lease = claim_new(conn)
    expire(conn, lease)
    thief, worker = connect(), connect()
    thief.execute("BEGIN")
    [successor] = claim_batch(thief, worker="second")
    late = start_and_wait_until_blocked(conn, worker, lambda c: commit(c, lease))
    thief.execute("COMMIT")
    with refused("FL001", reason="token_mismatch", current_token=successor.token):
        late.result()
    assert (state(conn, lease.job_id), entries(conn)) == ("running", [])
