"""How much of large tables retention and counts read, by PostgreSQL's counters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.conftest import NewDatabase

from .test_plans import Conn, Connect, Reads, reads_of, switch_autovacuum_off

JOBS = 40_000
TABLES = ("jobs", "ledger", "rejections", "attempts_log")
# Twenty days of work: every hundredth job has failed, and as many wait, half of them for later. The first
# five days have ledger entries and rejections, but no jobs. Their jobs are never inserted, because deleted
# rows would still be read until VACUUM removes them.
HISTORY = """
    WITH history AS MATERIALIZED (
        SELECT overlay(faultline.first_id_at(made)::text
                       PLACING substr(gen_random_uuid()::text, 15) FROM 15)::uuid AS id,
               n, made, state, made < now() - interval '15 days' AS is_gone,
               (state <> 'queued')::int AS token,
               CASE WHEN state <> 'queued' THEN gen_random_uuid() END AS lease
        FROM (SELECT n, now() - interval '20 days' + n * (interval '20 days' / %(jobs)s) AS made,
                     CASE n %% 100 WHEN 0 THEN 'failed' WHEN 1 THEN 'queued' ELSE 'succeeded' END AS state
              FROM generate_series(1, %(jobs)s) AS n) AS job),
    kept AS (
        INSERT INTO faultline.jobs (
            id, task, queue, state, failed_reason, next_run_at, fencing_token, lease_id, finished_at)
        SELECT id, 'task', 'queue' || n %% 3, state, CASE WHEN state = 'failed' THEN 'spent' END,
               CASE WHEN n %% 200 = 1 THEN now() + interval '1 day' ELSE made END, token, lease,
               CASE WHEN state <> 'queued' THEN made END
        FROM history WHERE NOT is_gone),
    entered AS (
        INSERT INTO faultline.ledger (job_id, fencing_token, lease_id, committed_at)
        SELECT id, token, lease, made FROM history WHERE state = 'succeeded')
    INSERT INTO faultline.rejections (job_id, worker, stale_token, reason, overlap, rejected_at)
    SELECT id, 'late', 1, 'unknown_job', '0', now() - interval '15 days' FROM history WHERE is_gone
"""
LATER_REJECTIONS = """
    INSERT INTO faultline.rejections (job_id, worker, stale_token, reason, overlap)
    SELECT id, 'late', 1, 'token_mismatch', '0' FROM faultline.jobs WHERE state = 'succeeded'
"""
PURGE_JOBS = "SELECT * FROM faultline.purge_jobs('7 days', '30 days', batch_size => 100)"
PURGE_LEDGER = "SELECT * FROM faultline.purge_ledger('14 days', batch_size => 100)"
QUEUES = "SELECT * FROM faultline.queues(%s)"
# One page of a hundred, read, locked, counted and deleted, with the rows that belong to each job.
ENTRIES_FOR_A_HUNDRED = 1_000


def load(loader: Conn) -> None:
    loader.execute("SET session_replication_role = replica")
    loader.execute(HISTORY, {"jobs": JOBS})
    loader.execute(LATER_REJECTIONS)
    loader.execute("VACUUM faultline.jobs")


def use_every_statement(conn: Conn) -> None:
    for _ in range(12):  # plans are kept from the sixth use on
        for statement, params in ((PURGE_JOBS, ()), (PURGE_LEDGER, ()), (QUEUES, (10,))):
            conn.execute(statement.encode(), params)


def complaints(conn: Conn) -> list[str]:
    found = []
    for name, statement, params in (
        ("purge_jobs", PURGE_JOBS, ()),
        ("purge_ledger", PURGE_LEDGER, ()),
        ("queues", QUEUES, (100,)),
    ):
        reads = reads_for(conn, statement, params)
        scanned = [table for table in ("jobs", "ledger", "rejections") if reads.scans[table]]
        if scanned:
            found.append(f"{name} scanned all of {scanned}")
        if (entries := sum(reads.entries.values())) > bound(name):
            found.append(f"{name} read {entries} entries: {reads.entries}")
    return found


def bound(name: str) -> int:
    if name == "queues":  # up to 101 of three standings in three queues, each with dead ones beside
        return 3_000
    return ENTRIES_FOR_A_HUNDRED


def reads_for(conn: Conn, statement: str, params: tuple[Any, ...]) -> Reads:
    rows, reads = reads_of(conn, statement, params)
    assert rows
    return reads


@pytest.fixture(scope="module")
def full_url(new_database: NewDatabase, template: str) -> Iterator[str]:
    """Full tables that were never analyzed."""
    with new_database(template) as url:
        with psycopg.connect(url, autocommit=True) as loader:
            switch_autovacuum_off(loader, *TABLES)
            load(loader)
        yield url


@pytest.fixture
def full(full_url: str) -> Iterator[Conn]:
    """For tests that roll back."""
    with psycopg.connect(full_url, autocommit=True) as conn:
        yield conn


def test_tables_that_were_never_analyzed_are_read_by_index(full: Conn) -> None:
    assert complaints(full) == []


def test_analyzed_tables_are_read_by_index(new_database: NewDatabase, full_url: str) -> None:
    with (
        new_database(full_url.rpartition("/")[2]) as url,
        psycopg.connect(url, autocommit=True) as conn,
    ):
        conn.execute("ANALYZE")

        assert complaints(conn) == []


def test_plans_made_while_the_tables_were_empty_serve_full_ones(
    conn: Conn, connect: Connect
) -> None:
    switch_autovacuum_off(conn, *TABLES)
    use_every_statement(conn)
    load(connect())

    assert complaints(conn) == []


def test_a_sweep_that_finds_nothing_old_reads_nothing(full: Conn) -> None:
    jobs = reads_for(full, "SELECT * FROM faultline.purge_jobs('60 days', '60 days')", ())
    ledger = reads_for(full, "SELECT * FROM faultline.purge_ledger('60 days')", ())

    assert (jobs.of_jobs, ledger.entries["ledger_pkey"], ledger.of_jobs) == (0, 0, 0)


def test_a_whole_purge_reads_every_old_job_a_few_times_and_no_recent_one(full: Conn) -> None:
    """Each call continues after the last one instead of starting at the beginning."""
    row = full.execute(
        "SELECT count(*) FROM faultline.jobs WHERE id < faultline.first_id_at(now() - interval '7 d')"
    ).fetchone()
    assert row is not None
    with full.transaction(force_rollback=True):
        reads = reads_for(
            full,
            "WITH RECURSIVE walk (last_id) AS ("
            " SELECT last_id FROM faultline.purge_jobs('7 days', '30 days')"
            " UNION ALL SELECT page.last_id FROM walk"
            " CROSS JOIN LATERAL faultline.purge_jobs('7 days', '30 days', walk.last_id) AS page"
            " WHERE walk.last_id IS NOT NULL) SELECT count(*) FROM walk",
            (),
        )

    assert reads.of_jobs < 6 * row[0]
