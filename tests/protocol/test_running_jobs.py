"""Renewals are cheap, and reconciling reads a bounded number of the running jobs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from .steps import Connection, Lease, claim_new_batch, columns, rows

HEARTBEAT = "SELECT * FROM faultline.heartbeat('worker', %s, %s, %s, '10 minutes')"
COUNTERS = """
    SELECT pg_stat_get_xact_tuples_updated(c.oid), pg_stat_get_xact_tuples_hot_updated(c.oid)
    FROM pg_class AS c WHERE c.oid = 'faultline.jobs'::regclass"""
INDEX_ENTRIES = """
    SELECT sum(pg_stat_get_xact_tuples_returned(i.indexrelid))::integer
    FROM pg_index AS i WHERE i.indrelid = 'faultline.jobs'::regclass"""
# In another queue than the claims look into, and by a worker that is not registered.
RUNNING = """
    INSERT INTO faultline.jobs (
        task, state, fencing_token, attempts, lease_id, lease_owner, lease_expires_at)
    SELECT 't', 'running', 1, 1, gen_random_uuid(), 'worker', clock_timestamp() + interval '1 hour'
    FROM generate_series(1, %s)"""
EXPIRE_THE_NEWEST = """
    UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() - interval '1 second'
    WHERE id = (SELECT id FROM faultline.jobs ORDER BY created_at DESC, id DESC LIMIT 1)
    RETURNING id"""
CLAIM = "SELECT job_id FROM faultline.claim('idle', '{default}', 1)"
NEXT_EXPIRY = (
    "SELECT faultline.next_expiry()"
    " = (SELECT min(lease_expires_at) FROM faultline.jobs WHERE state = 'running')"
)


def run_jobs(conn: Connection, count: int) -> None:
    conn.execute("SET session_replication_role = replica")
    conn.execute(RUNNING, [count])
    conn.execute("RESET session_replication_role")


def value(conn: Connection, query: str, *params: Any) -> Any:
    [(found,)] = rows(conn, query, *params)
    return found


def entries_read(conn: Connection, query: str) -> int:
    """How many index entries of jobs it reads; it is rolled back."""
    with conn.transaction(force_rollback=True):
        before = value(conn, INDEX_ENTRIES)
        conn.execute(query.encode())
        return int(value(conn, INDEX_ENTRIES) - before)


def hot_renewals(conn: Connection, leases: list[Lease]) -> int:
    """Renew all leases; return how many of the updates wrote to no index."""
    with conn.transaction():
        [(updated, hot)] = rows(conn, COUNTERS)
        conn.execute(HEARTBEAT, columns(leases))
        [(updated_after, hot_after)] = rows(conn, COUNTERS)
    assert updated_after - updated == len(leases)
    return int(hot_after - hot)


def test_nine_of_ten_renewals_write_no_index(conn: Connection) -> None:
    leases = claim_new_batch(conn, 200)
    # A page has room once its old versions are removed, which a snapshot of autovacuum may delay.
    assert max(hot_renewals(conn, leases) for _ in range(5)) >= 180


def test_every_job_of_a_claim_has_a_lease_id_of_its_own(conn: Connection) -> None:
    leases = claim_new_batch(conn, 50)
    assert len({lease.lease_id for lease in leases}) == 50


def test_a_claim_finds_an_expired_lease_among_a_thousand(conn: Connection) -> None:
    run_jobs(conn, 999)
    for _ in range(2):
        expired = value(conn, EXPIRE_THE_NEWEST)
        assert rows(conn, CLAIM) == [(expired,)]


def test_claims_find_an_expired_lease_among_many_in_turns(conn: Connection) -> None:
    run_jobs(conn, 2500)
    expired = value(conn, EXPIRE_THE_NEWEST)
    assert [rows(conn, CLAIM) for _ in range(3)] == [[], [], [(expired,)]]


def test_claims_begin_again_after_the_last_running_job(conn: Connection) -> None:
    run_jobs(conn, 1500)
    assert [rows(conn, CLAIM) for _ in range(2)] == [[], []]
    expired = value(conn, EXPIRE_THE_NEWEST)
    assert [rows(conn, CLAIM) for _ in range(2)] == [[], [(expired,)]]


def test_a_claim_that_finds_nothing_reads_a_bounded_number_of_running_jobs(
    conn: Connection,
) -> None:
    run_jobs(conn, 5000)
    for statistics in ("never analyzed", "analyzed"):
        if statistics == "analyzed":
            conn.execute("ANALYZE faultline.jobs")
        assert entries_read(conn, CLAIM) < 2 * 1000 + 50


def test_reconcile_and_the_first_expiry_read_the_running_jobs_alone(conn: Connection) -> None:
    conn.execute("SELECT faultline.next_expiry(), faultline.reconcile()")  # plans for no jobs
    conn.execute(
        "SELECT count(*) FROM faultline.enqueue_many('t', array_fill('{}'::jsonb, ARRAY[5000]))"
    )
    run_jobs(conn, 100)
    for query in ("SELECT faultline.next_expiry()", "SELECT faultline.reconcile()"):
        assert 100 <= entries_read(conn, query) < 150


def test_a_reconciler_examines_all_running_jobs(conn: Connection) -> None:
    run_jobs(conn, 2500)
    expired: UUID = value(conn, EXPIRE_THE_NEWEST)
    assert rows(conn, "SELECT job_id FROM faultline.reconcile()") == [(expired,)]


@pytest.mark.parametrize("running", [0, 1, 1500])
def test_the_first_expiry_is_that_of_the_leases(conn: Connection, running: int) -> None:
    run_jobs(conn, running)
    assert value(conn, NEXT_EXPIRY) is (True if running else None)


def test_a_first_expiry_that_has_passed_is_read_again(conn: Connection) -> None:
    run_jobs(conn, 1500)
    conn.execute(EXPIRE_THE_NEWEST)
    assert value(conn, NEXT_EXPIRY)
    conn.execute("SELECT faultline.reconcile()")
    assert value(conn, NEXT_EXPIRY)


def test_with_few_running_jobs_the_first_expiry_is_always_read(conn: Connection) -> None:
    run_jobs(conn, 10)
    assert value(conn, NEXT_EXPIRY)
    conn.execute("UPDATE faultline.jobs SET lease_expires_at = lease_expires_at - interval '1 min'")
    assert value(conn, NEXT_EXPIRY)
