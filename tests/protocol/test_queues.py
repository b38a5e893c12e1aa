"""Counts by queue and standing are exact up to the bound, and a minimum beyond it."""

from __future__ import annotations

from typing import Any

import pytest

from .ageing import failed
from .steps import (
    Connection,
    claim_batch,
    claim_new,
    commit,
    enqueue,
    enqueue_many,
    refused,
    rows,
    set_job,
)

Counts = dict[tuple[str, str], tuple[int, bool, int | None]]


def counts(conn: Connection, exact_up_to: int = 10) -> Counts:
    query = "SELECT queue, standing, at_least, is_exact, estimate FROM faultline.queues(%s)"
    return {(row[0], row[1]): tuple(row[2:]) for row in rows(conn, query, exact_up_to)}


def age(conn: Connection, queue: str, standing: str) -> Any:
    query = (
        "SELECT round(extract(epoch FROM clock_timestamp() - since) / 3600)"
        " FROM faultline.queues() WHERE queue = %s AND standing = %s"
    )
    [(hours,)] = rows(conn, query, queue, standing)
    return hours


def exact(number: int) -> tuple[int, bool, None]:
    return number, True, None


def test_there_are_no_queues_where_there_are_no_jobs(conn: Connection) -> None:
    assert counts(conn) == {}


def test_every_standing_is_counted_per_queue(conn: Connection) -> None:
    enqueue_many(conn, [{}] * 3, queue="mail")
    for priority in (0, 9):
        enqueue(conn, queue="mail", run_at="2999-01-01", priority=priority)
    enqueue_many(conn, [{}] * 4, queue="report")
    commit(conn, claim_batch(conn, 3, queues=["report"])[0])
    failed(conn, "1 hour", queue="audit")
    found = counts(conn)
    assert {queue for queue, _ in found} == {"audit", "mail", "report"}
    assert found["mail", "due"] == exact(3)
    assert found["mail", "scheduled"] == exact(2)
    assert found["mail", "running"] == found["mail", "failed"] == exact(0)
    assert found["report", "due"] == exact(1)
    assert found["report", "running"] == exact(2)
    assert found["audit", "failed"] == exact(1)
    assert found["audit", "due"] == exact(0)


def test_a_queue_that_a_worker_listens_to_is_there_when_it_is_empty(conn: Connection) -> None:
    conn.execute("SELECT faultline.register_worker('w', 'host', 1, '{idle}', false)")
    assert counts(conn)["idle", "due"] == exact(0)


def test_the_bound_itself_is_still_exact(conn: Connection) -> None:
    enqueue_many(conn, [{}] * 5)
    assert counts(conn, 5)["default", "due"] == exact(5)


@pytest.mark.parametrize(
    ("standing", "jobs"), [("due", {}), ("scheduled", {"run_at": "2999-01-01"})]
)
def test_beyond_the_bound_the_count_is_a_minimum(
    conn: Connection, standing: str, jobs: dict[str, Any]
) -> None:
    for priority in (1, 2):
        enqueue_many(conn, [{}] * 3, priority=priority, **jobs)
    at_least, is_exact, _ = counts(conn, 5)["default", standing]
    assert (at_least, is_exact) == (5, False)


def test_beyond_the_bound_the_count_of_failed_jobs_is_a_minimum(conn: Connection) -> None:
    for _ in range(3):
        failed(conn, "1 hour")
    at_least, is_exact, _ = counts(conn, 2)["default", "failed"]
    assert (at_least, is_exact) == (2, False)


def test_running_jobs_are_exact_up_to_ten_times_the_bound(conn: Connection) -> None:
    enqueue_many(conn, [{}] * 12)
    claim_batch(conn, 10)
    assert counts(conn, 1)["default", "running"] == exact(10)
    claim_batch(conn, 1)
    at_least, is_exact, _ = counts(conn, 1)["default", "running"]
    assert (at_least, is_exact) == (11, False)


def test_without_statistics_there_is_no_estimate_rather_than_a_wild_one(conn: Connection) -> None:
    conn.execute("ALTER TABLE faultline.jobs SET (autovacuum_enabled = off)")
    conn.execute("SELECT faultline.enqueue_many('t', array_fill('{}'::jsonb, ARRAY[10000]))")
    assert counts(conn)["default", "succeeded"] == (0, False, None)


def test_in_a_small_table_succeeded_jobs_are_counted_and_zero_is_exact(conn: Connection) -> None:
    enqueue(conn, queue="wait")
    commit(conn, claim_new(conn))
    conn.execute("ANALYZE faultline.jobs")
    found = counts(conn)
    assert found["default", "succeeded"] == exact(1)
    assert found["wait", "succeeded"] == exact(0)


def test_estimates_keep_queues_and_states_apart(conn: Connection) -> None:
    """All jobs of one queue have succeeded; all of another's wait, most not yet due."""
    with conn.transaction():
        conn.execute("SET LOCAL session_replication_role = replica")
        conn.execute(
            "INSERT INTO faultline.jobs (task, queue, state, next_run_at)"
            " SELECT 't', 'done', 'succeeded', now() - interval '1 h' FROM generate_series(1, 6000)"
            " UNION ALL SELECT 't', 'wait', 'queued', now() + interval '1 h'"
            " FROM generate_series(1, 3000)"
            " UNION ALL SELECT 't', 'wait', 'queued', now() - interval '1 h'"
            " FROM generate_series(1, 1000)"
        )
    conn.execute("ANALYZE faultline.jobs")  # it samples every row of so small a table
    found = counts(conn)
    assert found["done", "succeeded"][2] == pytest.approx(6000, rel=0.05)
    assert found["wait", "succeeded"] == (0, False, 0)  # the planner estimates at least one
    assert found["wait", "scheduled"][2] == pytest.approx(3000, rel=0.1)
    assert found["wait", "due"][2] == pytest.approx(1000, rel=0.2)
    assert counts(conn, 5000)["wait", "scheduled"] == exact(3000)


def test_the_oldest_job_of_each_standing_has_its_age(conn: Connection) -> None:
    for hours, priority in ((2, 9), (5, 4), (3, 0)):
        job_id, _ = enqueue(conn, queue="mail", priority=priority)
        set_job(conn, job_id, f"next_run_at = clock_timestamp() - interval '{hours} hours'")
    later, _ = enqueue(conn, queue="mail")
    set_job(conn, later, "next_run_at = clock_timestamp() + interval '7 hours'")
    failed(conn, "4 hours", queue="mail")
    enqueue(conn, queue="report")
    [running] = claim_batch(conn, 1, queues=["report"])
    set_job(conn, running.job_id, "claimed_at = clock_timestamp() - interval '6 hours'")
    assert age(conn, "mail", "due") == 5
    assert age(conn, "mail", "scheduled") == -7
    assert age(conn, "mail", "failed") == 4
    assert age(conn, "report", "running") == 6
    assert age(conn, "report", "due") is None


@pytest.mark.parametrize("bound", [0, 10_000_001, None])
def test_a_bound_out_of_range_is_refused(conn: Connection, bound: int | None) -> None:
    with refused("FL005"):
        conn.execute("SELECT * FROM faultline.queues(%s)", [bound])
