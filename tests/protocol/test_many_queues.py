"""faultline.claim over many queues reads only the lanes that hold jobs."""

from __future__ import annotations

from collections import Counter

import pytest

from .steps import Connection, claim_batch, enqueue, enqueue_many, make_due, rows

MANY = [f"queue{number}" for number in range(40)]


def test_a_better_priority_is_claimed_first_in_any_queue(conn: Connection) -> None:
    by_priority = {
        priority: enqueue(conn, queue=queue, priority=priority)[0]
        for priority, queue in ((9, MANY[0]), (0, MANY[39]), (5, MANY[7]))
    }
    make_due(conn, by_priority[9], ago="1 hour")
    claimed = [claim_batch(conn, 1, queues=MANY)[0].job_id for _ in range(3)]
    assert claimed == [by_priority[priority] for priority in (0, 5, 9)]


def test_only_the_queues_that_were_asked_for_are_read(conn: Connection) -> None:
    mine, _ = enqueue(conn, queue=MANY[3])
    enqueue(conn, queue="queue")
    enqueue(conn, queue="queue99")
    assert [lease.job_id for lease in claim_batch(conn, queues=MANY)] == [mine]


def test_a_paused_queue_is_not_read(conn: Connection) -> None:
    enqueue(conn, queue=MANY[3])
    mine, _ = enqueue(conn, queue=MANY[4])
    conn.execute("SELECT faultline.pause_queue(%s)", [MANY[3]])
    assert [lease.job_id for lease in claim_batch(conn, queues=MANY)] == [mine]


@pytest.mark.parametrize("others", [0, 300])
def test_jobs_of_all_queues_are_found_however_many_other_queues_hold_jobs(
    conn: Connection, others: int
) -> None:
    for number in range(others):
        enqueue(conn, queue=f"other{number}")
    given = {enqueue(conn, queue=queue, priority=n % 10)[0] for n, queue in enumerate(MANY)}
    assert {lease.job_id for lease in claim_batch(conn, 100, queues=MANY)} == given


def test_no_queue_of_a_priority_starves(conn: Connection) -> None:
    for queue in MANY[:10]:
        enqueue_many(conn, [{}] * 20, queue=queue)
    for _ in range(100):
        claim_batch(conn, 1, queues=MANY)
    taken = rows(conn, "SELECT queue FROM faultline.jobs WHERE state = 'running'")
    assert set(Counter(queue for (queue,) in taken)) == set(MANY[:10])
