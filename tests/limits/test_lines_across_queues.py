"""A free place goes to a job that can start, also if others are before it."""

from __future__ import annotations

from tests.protocol import steps
from tests.protocol.steps import Connection, Lease, value

from .steps import (
    assert_consistent,
    claim_all,
    enqueue,
    limit_customers,
    repair,
    set_limit,
    waiting,
)

BOTH = {"queues": ["billing", "mail"]}


def fill_line(conn: Connection, *, billing: int, mail: int) -> Lease:
    """One job runs; the others of its customer wait, those of billing first."""
    limit_customers(conn, 1)
    enqueue(conn, [{"customer": 1}] * billing, queue="billing")
    enqueue(conn, [{"customer": 1}] * mail, queue="mail")
    [lease] = claim_all(conn, 1, queues=["billing"])
    assert claim_all(conn, **BOTH) == []
    assert sum(waiting(conn).values()) == billing + mail - 1
    return lease


def register(conn: Connection, queue: str) -> None:
    conn.execute(
        "INSERT INTO faultline.workers (id, host, pid, queues, holds_locks)"
        " VALUES (%s, 'host', 1, ARRAY[%s], false)",
        [f"worker of {queue}", queue],
    )


def test_a_place_passes_over_jobs_of_a_paused_queue(conn: Connection) -> None:
    lease = fill_line(conn, billing=50, mail=3)
    conn.execute("SELECT faultline.pause_queue('billing')")
    for _ in range(3):
        steps.commit(conn, lease)
        [lease] = claim_all(conn, **BOTH)
        assert steps.job(conn, lease.job_id)["queue"] == "mail"
    steps.commit(conn, lease)
    assert claim_all(conn, **BOTH) == []
    conn.execute("SELECT faultline.resume_queue('billing')")
    assert repair(conn) == (0, 1, 0)
    assert len(claim_all(conn, **BOTH)) == 1
    assert_consistent(conn)


def test_a_place_does_not_stay_free_for_a_job_that_no_worker_serves(conn: Connection) -> None:
    lease = fill_line(conn, billing=50, mail=3)
    register(conn, "mail")
    for _ in range(3):
        steps.commit(conn, lease)
        [lease] = claim_all(conn, queues=["mail"])
    assert_consistent(conn)


def test_without_registered_workers_the_first_job_of_each_queue_is_due(conn: Connection) -> None:
    lease = fill_line(conn, billing=2, mail=2)
    steps.commit(conn, lease)
    [first] = claim_all(conn, 1, **BOTH)
    assert steps.job(conn, first.job_id)["queue"] == "billing"


def test_served_queues_share_a_place_by_priority_and_time(conn: Connection) -> None:
    lease = fill_line(conn, billing=2, mail=1)
    for queue in BOTH["queues"]:
        register(conn, queue)
    [urgent] = enqueue(conn, [{"customer": 1}], queue="mail", priority=1)
    assert claim_all(conn, **BOTH) == []
    queues = []
    for _ in range(3):
        steps.commit(conn, lease)
        [lease] = claim_all(conn, **BOTH)
        queues.append(steps.job(conn, lease.job_id)["queue"])
    assert queues == ["mail", "billing", "mail"]
    assert urgent == value(conn, "SELECT id FROM faultline.jobs WHERE priority = 1")


def test_a_raised_limit_takes_the_best_jobs_of_all_queues(conn: Connection) -> None:
    set_limit(conn, "task:charge", 0)
    enqueue(conn, [{}] * 3, queue="billing", priority=6)
    enqueue(conn, [{}], queue="billing", priority=2)
    enqueue(conn, [{}] * 2, queue="mail", priority=4)
    assert claim_all(conn, **BOTH) == []
    for queue in BOTH["queues"]:
        register(conn, queue)
    set_limit(conn, "task:charge", 3)
    due = (
        "SELECT array_agg(priority ORDER BY priority) FROM faultline.jobs WHERE next_run_at < now()"
    )
    assert value(conn, due) == [2, 4, 4]
