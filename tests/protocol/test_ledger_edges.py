"""Ledger inserts of several rows and of none, and the columns taken from the job."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from .ledger_forms import COLUMNS
from .steps import (
    Connect,
    Connection,
    Lease,
    cancel,
    claim_new,
    claim_new_batch,
    commit,
    enter,
    entries,
    one,
    refused,
    set_job,
    state,
    take_over,
    value,
)


def enter_together(conn: Connection, leases: Sequence[Lease], ending: str = "") -> None:
    listed = ", ".join(["(%s, %s, %s)"] * len(leases))
    conn.execute(
        f"INSERT INTO {COLUMNS} VALUES {listed} {ending}", [part for one in leases for part in one]
    )


@pytest.mark.parametrize(
    "statement",
    [
        f"INSERT INTO {COLUMNS} SELECT gen_random_uuid(), 1, gen_random_uuid() WHERE false",
        f"INSERT INTO {COLUMNS} SELECT job_id, fencing_token, lease_id FROM faultline.ledger",
        f"WITH e AS (INSERT INTO {COLUMNS} SELECT NULL, 1, NULL WHERE false) SELECT 1",
    ],
)
def test_a_statement_that_enters_nothing_dooms_its_transaction(
    conn: Connection, effects: str, statement: str
) -> None:
    conn.execute("BEGIN")
    conn.execute(f"INSERT INTO {effects} VALUES (NULL, 'stale')")
    with refused("FL001", reason="nothing_entered", current_token=None):
        conn.execute(statement)
    conn.execute("COMMIT")
    assert value(conn, f"SELECT count(*) FROM {effects}") == 0


def test_a_copy_of_no_rows_is_refused(conn: Connection) -> None:
    with (
        refused("FL001", reason="nothing_entered"),
        conn.cursor() as cursor,
        cursor.copy(f"COPY {COLUMNS} FROM STDIN"),
    ):
        pass


def test_a_forged_batch_that_enters_nothing_is_refused(conn: Connection) -> None:
    lease = claim_new(conn)
    commit(conn, lease)
    conn.execute("SET faultline.batch = 'on'")
    with refused("FL001", reason="nothing_entered"):
        enter_together(conn, [lease], "ON CONFLICT DO NOTHING")


def test_a_trigger_that_drops_the_entry_does_not_leave_the_job_succeeded(
    conn: Connection,
) -> None:
    conn.execute(
        "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        "CREATE TRIGGER zz_swallow BEFORE INSERT ON faultline.ledger"
        " FOR EACH ROW EXECUTE FUNCTION swallow()"
    )
    lease = claim_new(conn)
    with refused("FL001", reason="nothing_entered"):
        enter(conn, lease)
    assert state(conn, lease.job_id) == "running"


@pytest.mark.parametrize("other_session", [False, True])
@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_statement_that_enters_only_some_of_its_rows_enters_none(
    conn: Connection, connect: Connect, position: int, other_session: bool
) -> None:
    """ON CONFLICT DO NOTHING skips a row that exists already, without an error."""
    leases = claim_new_batch(conn, 3)
    commit(connect() if other_session else conn, leases[position])
    with refused("FL001"):
        enter_together(conn, leases, "ON CONFLICT DO NOTHING")
    assert entries(conn) == [leases[position]]


def test_a_trigger_that_drops_one_of_several_entries_leaves_no_job_succeeded(
    conn: Connection,
) -> None:
    leases = claim_new_batch(conn, 3)
    conn.execute(
        "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        "CREATE TRIGGER zz_swallow BEFORE INSERT ON faultline.ledger FOR EACH ROW"
        f" WHEN (NEW.job_id = '{leases[1].job_id}') EXECUTE FUNCTION swallow()"
    )
    with refused("FL001", reason="not_all_entered"):
        enter_together(conn, leases)
    assert {state(conn, lease.job_id) for lease in leases} == {"running"}
    with conn.transaction():  # what was counted for a statement is not counted for the next one
        enter(conn, leases[0])
        enter(conn, leases[2])
    assert entries(conn) == [leases[0], leases[2]]


def test_a_commit_with_faultline_batch_set_by_hand_goes_through_enter_ledger(
    conn: Connection,
) -> None:
    lease = claim_new(conn, worker="first")
    with conn.transaction():
        conn.execute("SET LOCAL faultline.batch = 'on'")
        commit(conn, lease)
    assert one(conn, "SELECT worker FROM faultline.ledger") == ("first",)


def test_several_jobs_may_be_entered_by_one_statement(conn: Connection) -> None:
    leases = claim_new_batch(conn, 3)
    enter_together(conn, leases)
    assert entries(conn) == leases


@pytest.mark.parametrize("batch", ["off", "on"])
@pytest.mark.parametrize("position", [0, 1, 2])
def test_one_stale_row_among_several_refuses_them_all(
    conn: Connection, batch: str, position: int
) -> None:
    leases = claim_new_batch(conn, 3)
    stale = leases[position]
    cancel(conn, stale.job_id)
    conn.execute(f"SET faultline.batch = '{batch}'")
    with refused("FL001", reason="not_running", job_id=str(stale.job_id)):
        enter_together(conn, leases)
    assert entries(conn) == []


def test_one_job_cannot_be_entered_under_both_its_tokens(conn: Connection) -> None:
    old = claim_new(conn)
    new = take_over(conn, old)
    with refused("FL001", reason="token_mismatch"):
        enter_together(conn, [new, old])
    assert entries(conn) == []


def test_a_lease_that_runs_out_inside_the_transaction_is_refused(
    conn: Connection, connect: Connect
) -> None:
    lease = claim_new(conn)
    worker = connect()
    worker.execute("BEGIN")
    worker.execute("SELECT now()")
    set_job(conn, lease.job_id, "lease_expires_at = clock_timestamp()")
    ran = "SELECT lease_expires_at > now() FROM faultline.jobs"
    assert value(worker, ran), "by now() the lease still runs"
    with refused("FL001", reason="lease_expired"):
        enter(worker, lease)


def test_a_forged_batch_is_refused_after_its_lease(conn: Connection, connect: Connect) -> None:
    lease = claim_new(conn)
    worker = connect()
    worker.execute("BEGIN")
    worker.execute("SET LOCAL faultline.batch = 'on'")
    worker.execute("SELECT now()")
    set_job(conn, lease.job_id, "lease_expires_at = clock_timestamp()")
    with refused("FL001", reason="lease_expired"):
        enter(worker, lease)


def test_the_entry_has_the_holder_and_the_time_of_the_database(
    conn: Connection,
) -> None:
    lease = claim_new(conn, worker="first")
    conn.execute(
        "INSERT INTO faultline.ledger (job_id, fencing_token, lease_id, worker, committed_at)"
        " VALUES (%s, %s, %s, 'another worker', '2001-01-01')",
        lease,
    )
    signed = "SELECT worker, committed_at > '2002-01-01' FROM faultline.ledger"
    assert one(conn, signed) == ("first", True)
