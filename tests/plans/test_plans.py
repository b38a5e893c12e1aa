"""How much the hot statements read of large tables, by the counters of the server.

EXPLAIN does not show the plans inside functions, and not every server has auto_explain. The counters
show which index was read, how many entries of it, and every sequential scan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from tests.conftest import NewDatabase

Conn = psycopg.Connection[Any]
Connect = Callable[[], Conn]

# A queue in use: the last lease to run out is the first row, so no order of insertion helps.
LOAD = """
    INSERT INTO faultline.jobs (
        id, task, state, priority, next_run_at, fencing_token, attempts, lease_id, lease_owner,
        lease_expires_at, finished_at)
    SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'task', state,
           CASE WHEN for_later THEN 0 ELSE 5 END,
           clock_timestamp() + CASE WHEN for_later THEN interval '1 day' ELSE interval '-1 day' END,
           (state <> 'queued')::int, (state <> 'queued')::int,
           CASE WHEN state <> 'queued' THEN gen_random_uuid() END,
           CASE WHEN state = 'running' THEN 'worker' END,
           CASE WHEN state = 'running' THEN now() + interval '1 day' - n * interval '1 ms' END,
           CASE WHEN state = 'succeeded' THEN clock_timestamp() END
    FROM (SELECT n, n <= %(later)s AS for_later,
                 CASE WHEN n <= %(later)s THEN 'queued'
                      ELSE (ARRAY['queued', 'running', 'succeeded'])[1 + n %% 3] END AS state
          FROM generate_series(1, %(jobs)s) AS n) AS job
"""
EXPIRED = """
    UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() - interval '1 second'
    WHERE id IN (SELECT id FROM faultline.jobs WHERE state = 'running' ORDER BY id LIMIT 200)
"""
RUNNING = """
    SELECT array_agg(id), array_agg(fencing_token), array_agg(lease_id)
    FROM (SELECT * FROM faultline.jobs
          WHERE state = 'running' AND lease_expires_at > now() LIMIT 10) AS held
"""
COUNTERS = """
    SELECT c.relname, pg_stat_get_xact_numscans(c.oid), pg_stat_get_xact_tuples_returned(c.oid)
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = 'faultline' AND c.relkind IN ('r', 'i')
"""
JOBS, FOR_LATER = 45_000, 30_000
ENTRIES_FOR_TEN_JOBS = 150  # of which a few are of dead rows

CLAIM = "SELECT * FROM faultline.claim('worker', '{default}', %s, '10 minutes')"
HEARTBEAT = "SELECT * FROM faultline.heartbeat('worker', %s, %s, %s, '10 minutes')"
COMMIT_MANY = "SELECT * FROM faultline.commit_many(%s, %s, %s)"
RECONCILE = "SELECT * FROM faultline.reconcile(%s)"


@dataclass(frozen=True)
class Reads:
    """What one statement read; under a table's name, its sequential scans."""

    scans: dict[str, int]
    entries: dict[str, int]

    @property
    def of_jobs(self) -> int:
        return sum(count for name, count in self.entries.items() if name.startswith("jobs"))


def load(loader: Conn, *, jobs: int, later: int) -> None:
    """Fill the tables in a session of its own: disabling triggers drops cached plans."""
    loader.execute("SET session_replication_role = replica")
    loader.execute(LOAD, {"jobs": jobs, "later": later})
    loader.execute(EXPIRED)


def use_every_hot_statement(conn: Conn, times: int) -> None:
    for _ in range(times):
        conn.execute("SELECT faultline.enqueue('task')")
        held = conn.execute(CLAIM, [1]).fetchone()
        assert held is not None
        fence = [[value] for value in held[:3]]
        conn.execute(HEARTBEAT, fence)
        conn.execute(COMMIT_MANY, fence)
        conn.execute(RECONCILE, [1])


def reads_of(conn: Conn, statement: str, params: tuple[Any, ...]) -> tuple[int, Reads]:
    """How many rows it returned and what it read; the transaction is rolled back."""
    with conn.transaction(force_rollback=True):
        before = {name: counts for name, *counts in conn.execute(COUNTERS)}
        rows = conn.execute(statement.encode(), params).fetchall()
        after = {name: counts for name, *counts in conn.execute(COUNTERS)}
    scans = {name: after[name][0] - before[name][0] for name in after}
    entries = {name: after[name][1] - before[name][1] for name in after}
    return len(rows), Reads(scans, entries)


def hot_statements(conn: Conn) -> dict[str, tuple[str, tuple[Any, ...], str]]:
    """Each with its parameters for ten jobs, and the index that it is meant to read."""
    held = conn.execute(RUNNING).fetchone()
    assert held is not None
    return {
        "claim": (CLAIM, (10,), "jobs_due"),
        "heartbeat": (HEARTBEAT, held, "jobs_pkey"),
        "commit_many": (COMMIT_MANY, held, "jobs_pkey"),
        "reconcile": (RECONCILE, (10,), "jobs_leased"),
    }


def complaints(conn: Conn) -> list[str]:
    """What any hot statement reads for ten jobs that it should not."""
    found = []
    for name, (statement, params, index) in hot_statements(conn).items():
        rows, reads = reads_of(conn, statement, params)
        if rows != 10:
            found.append(f"{name} handled {rows} jobs")
        if reads.scans["jobs"]:
            found.append(f"{name} scanned the whole table")
        if not reads.scans[index]:
            found.append(f"{name} did not use {index}: {reads.scans}")
        if reads.of_jobs > ENTRIES_FOR_TEN_JOBS:
            found.append(f"{name} read {reads.entries}")
    return found


def switch_autovacuum_off(conn: Conn, *tables: str) -> None:
    """Switch autovacuum off, so that only the test analyzes."""
    for table in tables:
        conn.execute(f"ALTER TABLE faultline.{table} SET (autovacuum_enabled = off)".encode())


@pytest.fixture(scope="module")
def full_url(new_database: NewDatabase, template: str) -> Iterator[str]:
    """A full database without statistics, for tests that roll back, and to be copied."""
    with new_database(template) as url:
        with psycopg.connect(url, autocommit=True) as loader:
            switch_autovacuum_off(loader, "jobs")
            load(loader, jobs=JOBS, later=FOR_LATER)
        yield url


@pytest.fixture
def analyzed(new_database: NewDatabase, full_url: str) -> Iterator[Conn]:
    with (
        new_database(full_url.rpartition("/")[2]) as url,
        psycopg.connect(url, autocommit=True) as conn,
    ):
        conn.execute("ANALYZE faultline.jobs")
        yield conn


def test_a_table_that_was_never_analyzed_is_read_by_index(full_url: str) -> None:
    with psycopg.connect(full_url, autocommit=True) as conn:
        assert complaints(conn) == []


def test_an_analyzed_table_is_read_by_index(analyzed: Conn) -> None:
    assert complaints(analyzed) == []


def test_plans_made_while_the_table_was_empty_serve_a_full_one(
    conn: Conn, connect: Connect
) -> None:
    switch_autovacuum_off(conn, "jobs")
    use_every_hot_statement(conn, times=12)  # plans are kept from the sixth use on
    load(connect(), jobs=JOBS, later=FOR_LATER)

    assert complaints(conn) == []


def test_plans_made_on_a_full_table_serve_it_as_well(analyzed: Conn) -> None:
    use_every_hot_statement(analyzed, times=12)

    assert complaints(analyzed) == []


def test_plans_made_for_one_job_serve_a_batch_of_500(analyzed: Conn) -> None:
    use_every_hot_statement(analyzed, times=12)
    held = analyzed.execute(RUNNING.replace("LIMIT 10)", "LIMIT 500)").encode()).fetchone()
    assert held is not None

    for statement in (HEARTBEAT, COMMIT_MANY):
        rows, reads = reads_of(analyzed, statement, held)
        assert rows == 500
        assert reads.of_jobs < 500 * 10  # a join that goes through all pairs reads 250,000


@pytest.mark.parametrize("name", ["cancel_many", "retry_many", "delete_many", "edit_many"])
@pytest.mark.parametrize("count", [10, 500])
def test_an_action_on_many_jobs_reads_only_these(analyzed: Conn, name: str, count: int) -> None:
    picked = analyzed.execute(
        "SELECT array_agg(id) FROM (SELECT id FROM faultline.jobs ORDER BY random() LIMIT %s) AS j",
        [count],
    ).fetchone()
    changes = ", changes => '{\"edited\": true}'" if name == "edit_many" else ""
    statement = f"SELECT * FROM faultline.{name}(job_ids => %s, wanted => %s{changes})"
    for _ in range(6):  # plans are kept from the sixth use on
        rows, reads = reads_of(analyzed, statement, (*(picked or ()), '{"task": "task"}'))
        assert rows == count
        assert reads.scans["jobs"] == reads.scans["attempts_log"] == 0
        assert reads.of_jobs < count * 10 + 50


def test_the_fence_is_inlined_into_the_statements_that_use_it(conn: Conn) -> None:
    explained = (
        "EXPLAIN (VERBOSE) SELECT faultline.is_holder(j, 1, j.lease_id) FROM faultline.jobs AS j"
    )
    plan = "\n".join(line for (line,) in conn.execute(explained))

    assert "token_mismatch" in plan
    assert "fence_violation(" not in plan
    assert "is_holder(" not in plan


def test_jobs_for_later_at_a_better_priority_cost_a_claim_nothing(
    conn: Conn, connect: Connect
) -> None:
    switch_autovacuum_off(conn, "jobs")
    load(connect(), jobs=FOR_LATER, later=FOR_LATER)

    rows, reads = reads_of(conn, CLAIM, (10,))

    assert (rows, reads.of_jobs) == (0, 0)


def test_a_claim_that_begins_at_another_priority_costs_the_same(analyzed: Conn) -> None:
    rotated = CLAIM.replace("'10 minutes')", "'10 minutes', first_priority => 3)")
    for _ in range(6):  # plans are kept from the sixth use on
        rows, reads = reads_of(analyzed, rotated, (10,))
        assert rows == 10
        assert reads.scans["jobs"] == 0
        assert reads.of_jobs <= ENTRIES_FOR_TEN_JOBS


def test_a_claim_over_many_queues_reads_only_the_lanes_that_hold_jobs(conn: Conn) -> None:
    switch_autovacuum_off(conn, "jobs")
    for queue in ("queue100", "queue400"):
        enqueue = (
            "SELECT count(*) FROM faultline.enqueue_many('t', array_fill('{}'::jsonb, '{20}'), %s)"
        )
        conn.execute(enqueue, [queue])
    over_many = "SELECT * FROM faultline.claim('worker', %s, 10, '10 minutes')"
    queues = [f"queue{number}" for number in range(500)]

    rows, reads = reads_of(conn, over_many, (queues,))

    assert rows == 10
    assert reads.scans["jobs"] == 0
    assert reads.scans["jobs_due"] < 10
    assert reads.of_jobs < ENTRIES_FOR_TEN_JOBS
