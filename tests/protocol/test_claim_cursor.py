"""faultline.claim with a cursor continues after the last claim and misses no job."""

from __future__ import annotations

import json
from typing import Any

import psycopg

from .steps import Connect, Connection, enqueue, enqueue_many, job, make_due, value

CLAIM = "SELECT * FROM faultline.claim('me', %s, %s, '1 hour', %s)"
READ = "SELECT pg_stat_get_xact_tuples_returned('faultline.jobs_due'::regclass)"


def claim_past(
    conn: Connection, how_many: int, last: Any = None, queues: tuple[str, ...] = ("default",)
) -> list[Any]:
    past = None
    if last is not None:
        past = json.dumps(
            {last.queue: {str(last.priority): [last.next_run_at.isoformat(), str(last.job_id)]}}
        )
    cursor = conn.cursor(row_factory=psycopg.rows.namedtuple_row)
    return cursor.execute(CLAIM, [list(queues), how_many, past]).fetchall()


def test_jobs_come_in_the_order_in_which_they_are_to_be_run(conn: Connection) -> None:
    late, early, urgent = enqueue(conn)[0], enqueue(conn)[0], enqueue(conn, priority=0)[0]
    make_due(conn, early, ago="1 hour")
    assert [row.job_id for row in claim_past(conn, 5)] == [urgent, early, late]


def test_a_claim_continues_after_the_last_job(conn: Connection) -> None:
    ids = [enqueue(conn)[0] for _ in range(4)]
    first = claim_past(conn, 2)
    assert [row.job_id for row in first] == ids[:2]
    assert [row.job_id for row in claim_past(conn, 2, first[-1])] == ids[2:]


def test_jobs_due_at_the_same_moment_are_told_apart_by_their_ids(conn: Connection) -> None:
    moment = "2020-01-01T00:00:00Z"
    ids = sorted(enqueue(conn, run_at=moment)[0] for _ in range(4))
    first = claim_past(conn, 2)
    assert [row.job_id for row in claim_past(conn, 2, first[-1])] == ids[2:]


def test_a_job_queued_again_before_the_cursor_is_found_when_too_few_come_after_it(
    conn: Connection,
) -> None:
    again, other, third = (enqueue(conn)[0] for _ in range(3))
    first, second = claim_past(conn, 2)
    conn.execute(
        "SELECT faultline.release(%s, %s, %s)",
        [first.job_id, first.fencing_token, first.lease_id],
    )
    assert [row.job_id for row in claim_past(conn, 1, second)] == [third]
    assert [row.job_id for row in claim_past(conn, 1, second)] == [again]
    assert job(conn, other)["state"] == "running"


def test_a_cursor_in_one_queue_and_priority_applies_to_no_other(conn: Connection) -> None:
    enqueue(conn)
    (last,) = claim_past(conn, 1)
    urgent, elsewhere = enqueue(conn, priority=0)[0], enqueue(conn, queue="mail")[0]
    make_due(conn, urgent, ago="1 day")
    make_due(conn, elsewhere, ago="1 day")
    after, _ = enqueue(conn)
    found = claim_past(conn, 3, last, queues=("default", "mail"))
    assert {row.job_id for row in found} == {urgent, elsewhere, after}


def test_under_an_old_snapshot_a_cursor_skips_the_entries_of_claimed_jobs(
    conn: Connection, connect: Connect
) -> None:
    """VACUUM keeps the rows that an old transaction may still read."""
    conn.execute("ALTER TABLE faultline.jobs SET (autovacuum_enabled = off)")
    enqueue_many(conn, [{}] * 3000)
    with connect() as holder, holder.transaction():
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT FROM faultline.jobs LIMIT 1")
        last = None
        for _ in range(28):
            rows = claim_past(conn, 100, last)
            commit_all = "SELECT count(*) FROM faultline.commit_many(%s, %s, %s)"
            conn.execute(
                commit_all,
                [
                    [getattr(row, name) for row in rows]
                    for name in ("job_id", "fencing_token", "lease_id")
                ],
            )
            last = rows[-1]

        def entries_read(mark: Any) -> int:
            with conn.transaction(force_rollback=True):
                before = value(conn, READ)
                assert len(claim_past(conn, 10, mark)) == 10
                return int(value(conn, READ) - before)

        assert entries_read(None) > 2_000
        assert entries_read(last) < 100
