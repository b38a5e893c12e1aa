"""How much claims and ends of jobs under limits read, by the counters."""

from __future__ import annotations

from tests.limits.steps import claim_all, enqueue, set_limit
from tests.protocol.steps import Connection

from .test_plans import CLAIM, reads_of, switch_autovacuum_off

OTHERS = """
    INSERT INTO faultline.jobs (task, payload) SELECT 'mail', '{}' FROM generate_series(1, 20000)
"""
TABLES = "jobs", "places", "waiting_jobs", "limit_states"


def test_a_claim_that_meets_a_full_key_reads_a_part_of_the_jobs_behind_it(
    conn: Connection,
) -> None:
    switch_autovacuum_off(conn, *TABLES)
    set_limit(conn, "task:charge", 1)
    enqueue(conn, [{}] * 3)
    assert len(claim_all(conn, 1)) == 1
    conn.execute(OTHERS)

    rows, reads = reads_of(conn, CLAIM, (1,))

    assert rows == 1
    assert reads.of_jobs < 2000, reads.entries
    assert reads.scans["jobs"] == 0


AWAITED = """
    INSERT INTO faultline.limit_states (limit_key, next_start_at, is_awaited)
    SELECT 'key:customer=' || n, now() + interval '1 hour', true FROM generate_series(1, 20000) AS n
"""


def test_a_claim_does_not_read_the_keys_whose_next_start_is_later(conn: Connection) -> None:
    switch_autovacuum_off(conn, *TABLES)
    set_limit(conn, "key:customer", rate_jobs=1, rate_seconds=3600.0)
    conn.execute(AWAITED)
    conn.execute(OTHERS)

    rows, reads = reads_of(conn, CLAIM, (1,))

    assert rows == 1
    assert sum(reads.entries.values()) < 2000, reads.entries
    assert reads.scans["limit_states"] == 0
