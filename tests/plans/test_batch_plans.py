"""How much the transaction of a batch reads of a large table of jobs."""

from __future__ import annotations

import psycopg
import pytest

from tests.plans.test_plans import RUNNING, Conn, analyzed, full_url, reads_of

__all__ = ["analyzed", "full_url"]  # fixtures

BATCH = "SELECT faultline.open_batch(%s, %s, %s), faultline.close_batch(%s, %s, %s)"


def leases(conn: Conn, jobs: int) -> tuple[object, ...]:
    held = conn.execute(RUNNING.replace("LIMIT 10)", f"LIMIT {jobs})").encode()).fetchone()
    assert held is not None
    return tuple(held)


def check(conn: Conn, jobs: int) -> None:
    held = leases(conn, jobs)
    before = conn.execute("SELECT count(*) FROM faultline.ledger").fetchone()
    rows, reads = reads_of(conn, BATCH, (*held, *held))
    assert (rows, before) == (1, (0,))
    assert reads.scans["jobs"] == reads.scans["ledger"] == 0
    assert reads.scans["jobs_pkey"] > 0
    assert reads.of_jobs < jobs * 10 + 50  # a join that goes through all pairs reads jobs squared


@pytest.mark.parametrize("jobs", [10, 500])
def test_a_batch_on_an_analyzed_table_reads_only_its_jobs(analyzed: Conn, jobs: int) -> None:
    for _ in range(7):  # plans are kept from the sixth use on
        check(analyzed, jobs)


def test_a_batch_on_a_table_that_was_never_analyzed_reads_only_its_jobs(full_url: str) -> None:
    with psycopg.connect(full_url, autocommit=True) as conn:
        check(conn, 10)


def test_plans_made_for_one_job_serve_a_batch_of_500(analyzed: Conn) -> None:
    for _ in range(7):
        check(analyzed, 1)
    check(analyzed, 500)
