"""faultline.open_batch and close_batch: one transaction, one fenced entry per job."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pytest

from .steps import (
    Connect,
    Connection,
    Lease,
    cancel,
    claim_new_batch,
    columns,
    commit,
    end_session,
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

WRITE = "INSERT INTO effects (writer) SELECT 'handler' FROM generate_series(1, 3)"
OPEN = "SELECT faultline.open_batch(%s, %s, %s, completes => %s)"
CLOSE = "SELECT faultline.close_batch(%s, %s, %s)"
KINDS = pytest.mark.parametrize("completes", [True, False], ids=["job", "step"])


def open_batch(conn: Connection, leases: Sequence[Lease], *, completes: bool = True) -> None:
    conn.execute("BEGIN")
    conn.execute(OPEN, [*columns(leases), completes])
    conn.execute(WRITE)


def close_batch(conn: Connection, leases: Sequence[Lease]) -> None:
    conn.execute(CLOSE, columns(leases))


def counted(conn: Connection) -> int:
    return int(value(conn, "SELECT count(*) FROM effects"))


@KINDS
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_a_batch_that_was_closed_commits_with_an_entry_per_job(
    conn: Connection, effects: str, completes: bool, isolation: str
) -> None:
    leases = claim_new_batch(conn, 3)
    conn.execute(f"SET default_transaction_isolation = '{isolation}'".encode())
    open_batch(conn, leases, completes=completes)
    close_batch(conn, leases)
    conn.execute("COMMIT")
    assert counted(conn) == 3
    assert entries(conn) == (sorted(leases) if completes else [])
    ended = {"succeeded"} if completes else {"running"}
    assert {state(conn, lease.job_id) for lease in leases} == ended
    assert value(conn, "SELECT count(*) FROM faultline.open_transactions") == 0


def test_the_entries_have_the_results_and_the_worker_of_their_jobs(
    conn: Connection, effects: str
) -> None:
    leases = claim_new_batch(conn, 2)
    open_batch(conn, leases)
    conn.execute(
        "SELECT faultline.close_batch(%s, %s, %s, ARRAY['1', NULL]::jsonb[])", columns(leases)
    )
    conn.execute("COMMIT")
    found = conn.execute("SELECT job_id, worker, result FROM faultline.ledger").fetchall()
    assert sorted(found) == sorted(
        [(leases[0].job_id, "first", 1), (leases[1].job_id, "first", None)]
    )


@pytest.mark.parametrize("position", [0, 1, 2])
def test_one_stale_lease_refuses_the_whole_batch_and_is_named(
    conn: Connection, effects: str, position: int
) -> None:
    leases = claim_new_batch(conn, 3)
    lost = leases[position]
    newer = take_over(conn, lost)
    conn.execute("BEGIN")
    with refused("FL001", job_id=str(lost.job_id), reason="token_mismatch", stale_token=1):
        conn.execute(OPEN, [*columns(leases), True])
    conn.execute("ROLLBACK")
    assert entries(conn) == []
    assert state(conn, newer.job_id) == "running"


def test_all_stale_jobs_of_a_batch_are_named(conn: Connection) -> None:
    leases = claim_new_batch(conn, 4)
    for lease in leases[1:3]:
        expire(conn, lease)
    conn.execute("BEGIN")
    with refused(
        "FL001",
        jobs=[
            {
                "job_id": str(lease.job_id),
                "reason": "lease_expired",
                "stale_token": lease.token,
                "current_token": lease.token,
            }
            for lease in sorted(leases[1:3])
        ],
    ):
        conn.execute(OPEN, [*columns(leases), True])


def test_a_lease_that_runs_out_in_the_transaction_refuses_the_whole_batch(
    conn: Connection, effects: str
) -> None:
    leases = claim_new_batch(conn, 3)
    open_batch(conn, leases)
    expire(conn, leases[1])
    with refused("FL001", reason="lease_expired", job_id=str(leases[1].job_id)):
        close_batch(conn, leases)
    conn.execute("ROLLBACK")
    assert (counted(conn), entries(conn)) == (0, [])


@KINDS
def test_a_commit_half_way_is_refused(conn: Connection, effects: str, completes: bool) -> None:
    leases = claim_new_batch(conn, 3)
    open_batch(conn, leases, completes=completes)
    with refused("FL009", job_id=str(leases[0].job_id)):
        conn.execute("COMMIT")
    assert (counted(conn), entries(conn)) == (0, [])


def test_entries_of_some_of_the_jobs_do_not_let_the_batch_commit(
    conn: Connection, effects: str
) -> None:
    leases = claim_new_batch(conn, 3)
    open_batch(conn, leases)
    commit(conn, leases[0])  # the one that the check at COMMIT looks for
    with refused("FL009"):
        conn.execute("COMMIT")
    assert (counted(conn), entries(conn)) == (0, [])


@pytest.mark.parametrize("closed", [slice(0, 2), slice(1, 3), slice(2, None, -1)])
def test_only_the_batch_that_was_opened_can_be_closed(
    conn: Connection, effects: str, closed: slice
) -> None:
    leases = claim_new_batch(conn, 3)
    open_batch(conn, leases)
    with refused("FL009"):
        close_batch(conn, leases[closed])
    conn.execute("ROLLBACK")
    assert (counted(conn), entries(conn)) == (0, [])


def test_a_batch_closed_in_a_savepoint_that_is_rolled_back_cannot_commit(
    conn: Connection, effects: str
) -> None:
    leases = claim_new_batch(conn, 2)
    open_batch(conn, leases, completes=False)
    conn.execute("SAVEPOINT nested")
    close_batch(conn, leases)
    conn.execute("ROLLBACK TO nested")
    with refused("FL009"):
        conn.execute("COMMIT")
    assert counted(conn) == 0


def test_a_batch_cannot_be_opened_or_closed_inside_a_savepoint(
    conn: Connection, effects: str
) -> None:
    leases = claim_new_batch(conn, 2)
    conn.execute("BEGIN; SAVEPOINT nested")
    with refused("FL009"):
        conn.execute(OPEN, [*columns(leases), True])
    conn.execute("ROLLBACK")
    open_batch(conn, leases)
    conn.execute("SAVEPOINT nested")
    with refused("FL009"):
        close_batch(conn, leases)


@pytest.mark.parametrize("count", [0, 10_001])
def test_the_size_of_a_batch_is_bounded(conn: Connection, count: int) -> None:
    leases = claim_new_batch(conn, 1) * count
    with refused("FL005"):
        conn.execute(OPEN, [*columns(leases), True])


def test_a_job_cannot_be_twice_in_a_batch(conn: Connection, effects: str) -> None:
    [lease] = claim_new_batch(conn, 1)
    open_batch(conn, [lease, lease])
    with pytest.raises(psycopg.errors.UniqueViolation):
        close_batch(conn, [lease, lease])


# ── with others ──────────────────────────────────────────────────────────────────────────────────


def test_while_a_batch_is_open_its_leases_are_renewed_and_not_reconciled(
    conn: Connection, connect: Connect, effects: str
) -> None:
    leases = claim_new_batch(conn, 3)
    open_batch(connect(), leases)
    assert set(heartbeat(conn, *leases)) == {"renewed"}
    for lease in leases:
        expire(conn, lease)
    assert reconcile(conn) == []


def test_batches_with_the_same_jobs_in_any_order_lock_them_in_one_order(
    conn: Connection, connect: Connect, effects: str
) -> None:
    """Both wait for the session that holds the last row, and not for each other."""
    leases = sorted(claim_new_batch(conn, 3))
    holder, first, second = connect(), connect(), connect()
    holder.execute("BEGIN")
    holder.execute("SELECT FROM faultline.jobs WHERE id = %s FOR UPDATE", [leases[2].job_id])
    waiting = [
        start_and_wait_until_blocked(conn, session, lambda c, o=order: open_batch(c, o))  # type: ignore[misc]
        for session, order in ((first, leases), (second, leases[::-1]))
    ]
    # Neither has a row that the other waits for: the first row can be locked by both, shared.
    holder.execute("ROLLBACK")
    for each in waiting:
        each.result(timeout=45)
    for session in (first, second):
        session.execute("ROLLBACK")


def test_a_cancel_that_comes_first_refuses_the_batch_and_one_that_comes_later_waits(
    conn: Connection, connect: Connect, effects: str
) -> None:
    leases = claim_new_batch(conn, 3)
    session, operator = connect(), connect()
    open_batch(session, leases)
    cancelling = start_and_wait_until_blocked(conn, operator, lambda c: cancel(c, leases[1].job_id))
    close_batch(session, leases)
    session.execute("COMMIT")
    assert cancelling.result(timeout=45) == "succeeded"
    others = claim_new_batch(conn, 3)
    cancel(conn, others[1].job_id)
    session.execute("BEGIN")
    with refused("FL001", reason="not_running", job_id=str(others[1].job_id)):
        session.execute(OPEN, [*columns(others), True])


def test_a_worker_that_dies_in_a_batch_leaves_nothing(
    conn: Connection, connect: Connect, effects: str
) -> None:
    leases = claim_new_batch(conn, 3)
    session = connect()
    open_batch(session, leases)
    close_batch(session, leases)
    end_session(conn, session)
    assert (counted(conn), entries(conn)) == (0, [])
    for lease in leases:
        expire(conn, lease)
    assert sorted(reconcile(conn)) == sorted(lease.job_id for lease in leases)


def test_a_batch_frees_the_places_of_its_jobs(conn: Connection, effects: str) -> None:
    conn.execute("SELECT faultline.set_limit('queue:default', max_running => 3)")
    leases = claim_new_batch(conn, 3)
    assert value(conn, "SELECT count(*) FROM faultline.places") == 3
    open_batch(conn, leases)
    close_batch(conn, leases)
    conn.execute("COMMIT")
    assert value(conn, "SELECT count(*) FROM faultline.places") == 0


def test_batches_of_their_own_do_not_wait_for_each_other(
    conn: Connection, connect: Connect, effects: str
) -> None:
    first, second = claim_new_batch(conn, 3), claim_new_batch(conn, 3)
    open_batch(connect(), first)
    other = never_waits(connect())
    open_batch(other, second)
    close_batch(other, second)
    other.execute("COMMIT")
    assert entries(conn) == second
