"""Lines that a benchmark fills without triggers are as claims would leave them."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from benchmarks.limit_lines import claim_jobs, due_under_a_limit, in_turn, wait_in_lines
from benchmarks.limits import insert
from faultline.postgres.sessions import run
from faultline.statements.invariants import INVARIANTS, check

Connection = psycopg.Connection[Any]


def count(conn: Connection, of: str) -> int:
    row = conn.execute(f"SELECT count(*) FROM {of}".encode()).fetchone()
    return 0 if row is None else int(row[0])


@pytest.mark.slow
def test_waiting_jobs_stand_in_their_lines_and_start_when_the_limit_allows_it(
    conn: Connection,
) -> None:
    wait_in_lines(conn, 300, keys=20, claim=claim_jobs(100), insert=insert)
    assert count(conn, "faultline.places") == 20
    assert count(conn, "faultline.waiting_jobs") == 300
    assert claim_jobs(100)(conn) == []
    assert [found for each in INVARIANTS for found in run(conn, check(each))] == []
    conn.execute("SELECT faultline.reset_limit('key:line')")
    assert len(claim_jobs(1000)(conn)) == 300  # type: ignore[arg-type]
    assert count(conn, "faultline.waiting_jobs") == 0


@pytest.mark.slow
def test_claims_are_measured_in_both_databases(conn: Connection) -> None:
    due_under_a_limit(conn, 2000)
    measured = in_turn(conn, conn, claim_jobs(1), None, rounds=1)
    assert measured.ratio > 0
    assert measured.pages[0] > 0
    assert count(conn, "faultline.places") >= 50
