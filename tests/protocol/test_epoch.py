"""faultline.current_epoch: no token is issued again after a failover or restore.

These tests change the record of the epoch; tests/failover promotes real servers.
"""

from __future__ import annotations

import psycopg
import pytest

from .steps import (
    Connect,
    Connection,
    all_at_once,
    claim,
    claim_new,
    commit,
    enqueue,
    expire,
    heartbeat,
    never_waits,
    one,
    refused,
    rows,
    state,
    take_over,
    value,
)

COUNTER = 2**22
SECONDS = "SELECT floor(extract(epoch FROM clock_timestamp() - '2025-01-01 00:00+00'))::bigint"
LAID_DOWN = "laid down from a base backup"
FROM_A_BASE_BACKUP = """
    ALTER FUNCTION faultline.server_identity() RENAME TO true_identity;
    CREATE FUNCTION faultline.server_identity(
        OUT system_identifier bigint, OUT timeline integer, OUT restored_from timestamptz,
        OUT database_oid oid)
    LANGUAGE sql AS $$ SELECT t.system_identifier, t.timeline, '2024-02-03'::timestamptz, t.database_oid
                       FROM faultline.true_identity() AS t $$
"""


def began_elsewhere(conn: Connection, assignment: str) -> None:
    """Change the record of the epoch, as if it had begun on a server like this."""
    conn.execute(
        f"UPDATE faultline.epochs SET server_started_at = '2020-01-01', {assignment}".encode()
    )


def epochs(conn: Connection) -> list[int]:
    return [epoch for (epoch,) in rows(conn, "SELECT epoch FROM faultline.epochs ORDER BY epoch")]


def test_tokens_start_at_one_in_the_epoch_of_the_install(conn: Connection) -> None:
    assert one(conn, "SELECT epoch, cause, timeline FROM faultline.epochs") == (0, "install", 1)
    assert claim_new(conn).token == 1


def test_a_restart_of_the_same_server_begins_no_epoch(conn: Connection) -> None:
    began_elsewhere(conn, "timeline = timeline")
    assert claim_new(conn).token == 1
    examined = "SELECT server_started_at = pg_postmaster_start_time() FROM faultline.epochs"
    assert value(conn, examined) is True
    assert epochs(conn) == [0]


def test_after_a_restart_no_claim_waits_for_one_in_an_open_transaction(
    conn: Connection, connect: Connect
) -> None:
    enqueue(conn)
    began_elsewhere(conn, "timeline = timeline")
    with conn.transaction():
        assert claim(conn).token == 1
        assert claim_new(never_waits(connect())).token == 1


def test_a_new_timeline_begins_an_epoch_with_the_next_claim(conn: Connection) -> None:
    before = value(conn, SECONDS)
    began_elsewhere(conn, "timeline = 7")
    lease = claim_new(conn)
    _, epoch = epochs(conn)
    assert lease.token == epoch * COUNTER + 1
    assert before <= epoch <= value(conn, SECONDS)
    assert claim_new(conn).token == epoch * COUNTER + 1
    assert len(epochs(conn)) == 2


def test_sessions_that_survive_a_promotion_see_the_new_timeline(conn: Connection) -> None:
    claim_new(conn)
    conn.execute("UPDATE faultline.epochs SET timeline = 7")  # and the server was not started again
    assert claim_new(conn).token > COUNTER


def test_the_epoch_rises_even_where_the_clock_is_behind(conn: Connection) -> None:
    far = value(conn, SECONDS) + 100_000
    began_elsewhere(conn, f"epoch = {far}, timeline = 7")
    assert claim_new(conn).token == (far + 1) * COUNTER + 1


def test_a_token_continues_from_the_job_if_that_is_higher_than_the_epoch(conn: Connection) -> None:
    conn.execute("SELECT faultline.bump_epoch()")
    first = claim_new(conn)
    assert take_over(conn, first).token == first.token + 1


def test_a_job_that_was_claimed_before_is_above_everything_of_the_old_epoch(
    conn: Connection,
) -> None:
    lost = claim_new(conn)
    began_elsewhere(conn, "timeline = 7")
    expire(conn, lost)
    assert claim(conn).token >= COUNTER
    with refused("FL001", reason="token_mismatch"):
        commit(conn, lost)


def test_a_lease_from_the_old_epoch_is_still_held(conn: Connection) -> None:
    lease = claim_new(conn)
    began_elsewhere(conn, "timeline = 7")
    assert heartbeat(conn, lease) == ["renewed"]
    commit(conn, lease)
    assert state(conn, lease.job_id) == "succeeded"


@pytest.mark.parametrize(
    ("elsewhere", "message"),
    [
        ("system_identifier = 42", "restored into another server"),
        ("system_identifier = 42, timeline = 7", "restored into another server"),
        ("database_oid = 42", "was copied or restored"),
        ("database_oid = 42, timeline = 7", "was copied or restored"),
        (LAID_DOWN, "restored from the base backup"),
    ],
)
def test_after_a_restore_claims_are_refused_until_an_operator_bumps_the_epoch(
    conn: Connection, elsewhere: str, message: str
) -> None:
    lease = claim_new(conn)
    enqueue(conn)
    if elsewhere == LAID_DOWN:
        conn.execute(FROM_A_BASE_BACKUP)
        elsewhere = "timeline = timeline"
    began_elsewhere(conn, elsewhere)
    for _ in range(2):
        with pytest.raises(psycopg.Error, match=message) as error:
            claim(conn)
        assert error.value.sqlstate == "FL008"
    commit(conn, lease)  # it ends the job that it held before
    epoch = value(conn, "SELECT faultline.bump_epoch('drill')")
    assert claim(conn).token == epoch * COUNTER + 1
    newest = "SELECT cause FROM faultline.epochs ORDER BY epoch DESC LIMIT 1"
    assert value(conn, newest) == "by hand: drill"


def test_a_backup_label_that_was_deleted_is_no_restore(conn: Connection) -> None:
    began_elsewhere(conn, "restored_from = '2024-02-03'")
    assert claim_new(conn).token == 1


def test_a_property_that_cannot_be_read_does_not_refuse_claims(conn: Connection) -> None:
    began_elsewhere(
        conn, "timeline = NULL, system_identifier = NULL, restored_from = NULL, database_oid = NULL"
    )
    assert claim_new(conn).token == 1


def test_of_many_claims_after_a_promotion_one_begins_the_epoch(
    connect: Connect, conn: Connection
) -> None:
    for _ in range(8):
        enqueue(conn)
    began_elsewhere(conn, "timeline = 7")
    tokens = all_at_once([connect() for _ in range(8)], lambda each: claim(each).token)
    _, epoch = epochs(conn)
    assert set(tokens) == {epoch * COUNTER + 1}


def test_concurrent_bumps_begin_one_epoch_each(connect: Connect, conn: Connection) -> None:
    bump = "SELECT faultline.bump_epoch()"
    found = all_at_once([connect() for _ in range(6)], lambda each: value(each, bump))
    assert len(set(found)) == 6
    assert epochs(conn) == [0, *sorted(found)]


def test_a_token_fits_in_53_bits_for_as_long_as_an_epoch_is_accepted(conn: Connection) -> None:
    began_elsewhere(conn, "epoch = 2147483646, timeline = 7")
    assert claim_new(conn).token < 2**53
    enqueue(conn)
    with refused("23514"):
        conn.execute("SELECT faultline.bump_epoch()")
