"""faultline.reschedule_stranded: jobs do not wait after the clock was set back."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from .steps import Connection, claim_batch, claim_new, enqueue, job, one, rows, set_job, value

SET_BACK = """
    created_at = created_at + interval '1 day', next_run_at = next_run_at + interval '1 day',
    claimed_at = claimed_at + interval '1 day'
"""
RESCHEDULE = "SELECT jobs, next FROM faultline.reschedule_stranded(%s, %s)"


def set_back(conn: Connection, *job_ids: UUID) -> None:
    """Move all stored times a day ahead, as if the clock was set back by a day."""
    for job_id in job_ids:
        set_job(conn, job_id, SET_BACK)


def reschedule(conn: Connection, page_size: int = 10_000) -> int:
    jobs, after = 0, None
    for _ in range(100):
        found, after = one(conn, RESCHEDULE, None if after is None else str_of(after), page_size)
        jobs += found
        if after is None:
            return jobs
    raise AssertionError("it does not come to an end")


def str_of(after: Any) -> str:
    return json.dumps(after)


def fail(conn: Connection, job_id: UUID, retry_in: str) -> None:
    (lease,) = [lease for lease in claim_batch(conn) if lease.job_id == job_id]
    conn.execute("SELECT faultline.fail(%s, %s, %s, 'x', %s)", [*lease, retry_in])


def test_jobs_that_were_to_run_at_once_are_due_in_their_order(conn: Connection) -> None:
    ids = [enqueue(conn)[0] for _ in range(5)]
    set_back(conn, *ids)
    assert claim_batch(conn) == []
    assert reschedule(conn) == 5
    assert [lease.job_id for lease in claim_batch(conn)] == ids


def test_a_time_that_a_producer_asked_for_stays(conn: Connection) -> None:
    later = (
        "SELECT job_id FROM faultline.enqueue('t', run_at => clock_timestamp() + interval '1 h')"
    )
    job_id = value(conn, later)
    set_back(conn, job_id)
    before = job(conn, job_id)["next_run_at"]
    assert reschedule(conn) == 0
    assert job(conn, job_id)["next_run_at"] == before


def test_a_retry_waits_no_longer_than_its_delay(conn: Connection) -> None:
    job_id, _ = enqueue(conn)
    fail(conn, job_id, "1 hour")
    set_back(conn, job_id)
    assert reschedule(conn) == 1
    query = "SELECT next_run_at - clock_timestamp() BETWEEN %s AND %s FROM faultline.jobs"
    assert value(conn, query, "59 minutes", "61 minutes")


def test_without_a_clock_setback_nothing_is_rescheduled(conn: Connection) -> None:
    waiting, retried = enqueue(conn)[0], enqueue(conn)[0]
    fail(conn, retried, "1 hour")
    before = rows(conn, "SELECT id, next_run_at FROM faultline.jobs ORDER BY id")
    assert reschedule(conn) == 0
    assert rows(conn, "SELECT id, next_run_at FROM faultline.jobs ORDER BY id") == before
    assert waiting in {row[0] for row in before}
    assert value(conn, "SELECT faultline.clock_setback() = '0'")


def test_pages_cover_all_queues_and_priorities(conn: Connection) -> None:
    ids = [
        enqueue(conn, queue=queue, priority=priority)[0]
        for queue in ("a", "b", "c")
        for priority in (0, 5)
        for _ in range(3)
    ]
    set_back(conn, *ids)
    assert reschedule(conn, page_size=2) == len(ids)


def test_a_clock_setback_is_measured_by_the_newest_recorded_times(conn: Connection) -> None:
    claim_new(conn)
    set_back(conn, enqueue(conn)[0])
    assert value(conn, "SELECT faultline.clock_setback() BETWEEN '23 h' AND '25 h'")
