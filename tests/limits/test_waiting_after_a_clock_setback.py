"""A clock that was set back loses no waiting job, and does not delay it."""

from __future__ import annotations

from tests.protocol import steps
from tests.protocol.steps import Connection, value

from .steps import assert_consistent, claim_all, due, enqueue, parked, repair, set_limit

# As if the clock had been set back by an hour since the job was claimed for the first time.
SET_BACK = """
    WITH job AS (UPDATE faultline.jobs SET next_run_at = next_run_at + interval '1 hour',
                     claimed_at = claimed_at + interval '1 hour', created_at = created_at + interval '1 hour'
                 WHERE state = 'queued' RETURNING id)
    UPDATE faultline.waiting_jobs AS w SET due_at = w.due_at + interval '1 hour' FROM job
    WHERE w.job_id = job.id
"""


def test_a_retry_that_waits_is_neither_lost_nor_late(conn: Connection) -> None:
    set_limit(conn, "task:charge", 2)
    enqueue(conn, [{}] * 2)
    runs, retried = claim_all(conn)
    steps.release(conn, retried)
    set_limit(conn, "task:charge", 1)
    assert claim_all(conn) == []
    assert parked(conn) == 1
    conn.execute(SET_BACK)

    conn.execute("SELECT FROM faultline.reschedule_stranded()")
    repair(conn)
    assert parked(conn) == 1
    assert_consistent(conn)
    steps.commit(conn, runs)
    assert due(conn) == 1
    [again] = claim_all(conn)
    assert again.job_id == retried.job_id
    assert value(conn, "SELECT count(*) FROM faultline.waiting_jobs") == 0
