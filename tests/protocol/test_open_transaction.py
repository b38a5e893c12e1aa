"""faultline.open_transaction: PostgreSQL refuses COMMIT without the ledger entry."""

from __future__ import annotations

import psycopg
import pytest

from .steps import (
    Connect,
    Connection,
    Lease,
    claim_new,
    commit,
    entries,
    expire,
    reconcile,
    refused,
    state,
    take_over,
    value,
)

WRITE = "INSERT INTO effects (writer) VALUES ('handler')"
SPELLINGS = [
    "COMMIT",
    "end",
    "COMMIT AND CHAIN",
    "/* COMMIT */ commit work",
    "END TRANSACTION AND NO CHAIN",
    "SELECT 1; COMMIT",
    "PREPARE TRANSACTION 'half-way'",
]


def open_transaction(conn: Connection, lease: Lease, *, completes: bool = True) -> None:
    conn.execute("BEGIN")
    conn.execute(
        "SELECT faultline.open_transaction(%s, %s, %s, completes => %s)", [*lease, completes]
    )
    conn.execute(WRITE)


def close_transaction(conn: Connection, lease: Lease) -> None:
    conn.execute("SELECT faultline.close_transaction(%s, %s, %s)", lease)


def counted(conn: Connection) -> int:
    return int(value(conn, "SELECT count(*) FROM effects"))


@pytest.mark.parametrize("completes", [True, False], ids=["job", "step"])
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_a_transaction_that_was_closed_commits(
    conn: Connection, effects: str, completes: bool, isolation: str
) -> None:
    lease = claim_new(conn)
    conn.execute(f"SET default_transaction_isolation = '{isolation}'")
    open_transaction(conn, lease, completes=completes)
    close_transaction(conn, lease)
    conn.execute("COMMIT")
    assert counted(conn) == 1
    assert state(conn, lease.job_id) == ("succeeded" if completes else "running")
    assert value(conn, "SELECT count(*) FROM faultline.open_transactions") == 0


@pytest.mark.parametrize("completes", [True, False], ids=["job", "step"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_commit_half_way_is_refused_however_it_is_spelled(
    conn: Connection, effects: str, spelling: str, completes: bool
) -> None:
    if spelling.startswith("PREPARE") and value(conn, "SHOW max_prepared_transactions") == "0":
        pytest.skip("prepared transactions are off on this server")
    lease = claim_new(conn)
    open_transaction(conn, lease, completes=completes)
    with refused("FL009", job_id=str(lease.job_id)):
        conn.execute(spelling)
    assert conn.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
    assert (counted(conn), entries(conn)) == (0, [])


@pytest.mark.parametrize("completes", [True, False], ids=["job", "step"])
def test_after_a_rollback_by_hand_there_is_nothing_to_close(
    conn: Connection, effects: str, completes: bool
) -> None:
    lease = claim_new(conn)
    open_transaction(conn, lease, completes=completes)
    conn.execute("ROLLBACK")
    conn.execute("BEGIN")
    with refused("FL009", job_id=str(lease.job_id)):
        close_transaction(conn, lease)
    conn.execute("ROLLBACK")
    assert (counted(conn), state(conn, lease.job_id)) == (0, "running")


def test_the_opening_of_one_job_does_not_close_another(conn: Connection, effects: str) -> None:
    first, second = claim_new(conn), claim_new(conn)
    open_transaction(conn, first)
    with refused("FL009", job_id=str(second.job_id)):
        close_transaction(conn, second)


def test_a_transaction_cannot_be_opened_outside_of_a_transaction(conn: Connection) -> None:
    lease = claim_new(conn)
    with refused("FL009"):
        conn.execute("SELECT faultline.open_transaction(%s, %s, %s)", lease)


def test_a_transaction_cannot_be_opened_inside_a_savepoint(conn: Connection) -> None:
    lease = claim_new(conn)
    conn.execute("BEGIN; SAVEPOINT nested")
    with refused("FL009"):
        conn.execute("SELECT faultline.open_transaction(%s, %s, %s)", lease)


def test_a_stale_holder_cannot_open_a_transaction(conn: Connection) -> None:
    lease = claim_new(conn)
    take_over(conn, lease)
    conn.execute("BEGIN")
    with refused("FL001", reason="token_mismatch"):
        conn.execute("SELECT faultline.open_transaction(%s, %s, %s)", lease)


def test_a_job_with_an_open_transaction_is_not_reconciled(
    conn: Connection, connect: Connect, effects: str
) -> None:
    lease = claim_new(conn)
    open_transaction(connect(), lease)
    expire(conn, lease)
    assert reconcile(conn) == []


# ── savepoints ───────────────────────────────────────────────────────────────────────────────────


def test_an_entry_inside_a_savepoint_is_refused(conn: Connection, effects: str) -> None:
    lease = claim_new(conn)
    conn.execute("BEGIN")
    conn.execute(WRITE)
    conn.execute("SAVEPOINT nested")
    with refused("FL009", job_id=str(lease.job_id)):
        commit(conn, lease)


def test_an_entry_in_a_block_that_catches_errors_is_refused(conn: Connection) -> None:
    """PL/pgSQL runs a block with an EXCEPTION clause as a subtransaction."""
    lease = claim_new(conn)
    call = f"faultline.commit('{lease.job_id}', {lease.token}, '{lease.lease_id}')"
    conn.execute(f"DO $$ BEGIN PERFORM {call}; EXCEPTION WHEN SQLSTATE 'FL009' THEN NULL; END $$")
    assert entries(conn) == []


def test_a_batch_inside_a_savepoint_is_refused(conn: Connection, effects: str) -> None:
    lease = claim_new(conn)
    conn.execute("BEGIN; SAVEPOINT nested")
    with refused("FL009", job_id=str(lease.job_id)):
        conn.execute(
            "SELECT faultline.commit_many(ARRAY[%s::uuid], ARRAY[%s::bigint], ARRAY[%s::uuid])",
            lease,
        )


def test_above_read_committed_an_entry_in_a_savepoint_is_refused_as_such(
    conn: Connection,
) -> None:
    """FL009 and not FL007: a caller could roll FL007 back with the savepoint."""
    lease = claim_new(conn)
    conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SAVEPOINT nested")
    with refused("FL009"):
        commit(conn, lease)


def test_in_an_opened_transaction_the_entry_may_be_in_a_savepoint_that_is_released(
    conn: Connection, effects: str
) -> None:
    lease = claim_new(conn)
    open_transaction(conn, lease)
    conn.execute("SAVEPOINT nested")
    commit(conn, lease)
    conn.execute("RELEASE nested; COMMIT")
    assert (counted(conn), entries(conn)) == (1, [lease])


@pytest.mark.parametrize("completes", [True, False], ids=["job", "step"])
def test_in_an_opened_transaction_an_entry_that_was_rolled_back_is_missed_at_commit(
    conn: Connection, effects: str, completes: bool
) -> None:
    lease = claim_new(conn)
    open_transaction(conn, lease, completes=completes)
    conn.execute("SAVEPOINT nested")
    close_transaction(conn, lease)
    conn.execute("ROLLBACK TO nested")
    with refused("FL009"):
        conn.execute("COMMIT")
    assert (counted(conn), entries(conn)) == (0, [])


def test_a_refusal_undone_by_a_savepoint_is_found_again_at_commit(
    conn: Connection, connect: Connect, effects: str
) -> None:
    """Only open_transaction stops a stale caller that rolls back to a savepoint."""
    lease = claim_new(conn)
    open_transaction(conn, lease)
    conn.execute("SAVEPOINT nested")
    with refused("FL001", reason="token_mismatch"):
        commit(conn, lease._replace(token=lease.token + 1))
    conn.execute("ROLLBACK TO nested")
    with refused("FL009"):
        conn.execute("COMMIT")
    assert counted(conn) == 0


def test_set_constraints_immediate_does_not_avoid_the_check(conn: Connection, effects: str) -> None:
    lease = claim_new(conn)
    open_transaction(conn, lease)
    conn.execute("SAVEPOINT nested")
    with refused("FL009"):
        conn.execute("SET CONSTRAINTS ALL IMMEDIATE")
    conn.execute("ROLLBACK TO nested")
    with refused("FL009"):
        conn.execute("COMMIT")
    assert counted(conn) == 0
