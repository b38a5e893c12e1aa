"""Slots and weights of a worker's queues, by the claims and ends in the database."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from faultline import Faultline, Job, JobState, QueueShare, RetryPolicy
from tests.lease_history import most_leases
from tests.running import Connection, EventTap, count, ended, value, working
from tests.waiting import LIMIT_SECONDS, idle, wait_until

SOON = RetryPolicy(base_seconds=0.01, cap_seconds=0.01)
QUEUED = "SELECT count(*) FROM faultline.jobs WHERE state = 'queued'"
# Short jobs of other queues are claimed ahead, and released when the machine is slow.
RELEASED_SLOW = (
    "SELECT count(*) FROM faultline.attempts_log AS a JOIN faultline.jobs AS j ON j.id = a.job_id"
    " WHERE j.queue = 'slow'"
)


@pytest.fixture
def shop(app: Faultline) -> Faultline:
    @app.task(name="charge", queue="billing", retry=SOON)
    async def charge(job: Job, fails: bool = False) -> None:
        if fails and job.attempt == 1:
            raise ValueError("once")

    @app.task(name="send", queue="mail")
    async def send(job: Job) -> None:
        await idle(0.001)

    @app.task(name="count")
    async def number(job: Job) -> None: ...

    return app


def enqueue_mixed(shop: Faultline, jobs: int) -> None:
    for name in ("charge", "send", "count"):
        shop.tasks[name].enqueue_many([{}] * jobs)
    shop.tasks["charge"].enqueue_many([{"fails": True}] * (jobs // 10))


@pytest.mark.parametrize(
    "queues",
    [
        {"billing": 2, "mail": 5, "default": None},
        {"billing": 2, "mail": QueueShare(5, 3), "*": QueueShare(weight=2)},
        {"billing": QueueShare(2, 9), "mail": 5, "*": 4},
    ],
    ids=["rest", "star", "star with slots"],
)
def test_a_worker_never_holds_more_leases_of_a_queue_than_the_queue_has_slots(
    shop: Faultline, conn: Connection, queues: Any
) -> None:
    """Over the whole history, while the other queues are claimed ahead."""
    enqueue_mixed(shop, 400)
    with working(shop, queues=queues, concurrency=10):
        wait_until(lambda: count(conn, "faultline.ledger") == 1_240, "the end of all jobs")
    most = most_leases(conn)
    assert most["billing"] <= 2
    assert most["mail"] <= 5
    if queues.get("*") == 4:
        assert most["default"] <= 4
    assert most["billing"] > 1
    assert value(conn, "SELECT count(*) FROM faultline.attempts_log WHERE outcome = 'failed'") == 40


def test_a_worker_without_slots_holds_more(shop: Faultline, conn: Connection) -> None:
    """The control of the test above: the same query finds more leases."""
    enqueue_mixed(shop, 400)
    with working(shop, concurrency=10):
        wait_until(lambda: count(conn, "faultline.ledger") == 1_240, "the end of all jobs")
    assert most_leases(conn)["billing"] > 2


def test_a_full_queue_does_not_block_the_others(shop: Faultline, conn: Connection) -> None:
    """Jobs of a queue whose slots are taken stay queued, and hold no lease."""
    gate = asyncio.Event()

    @shop.task(name="stuck", queue="slow")
    async def stuck(job: Job) -> None:
        await asyncio.wait_for(gate.wait(), LIMIT_SECONDS)

    stuck.enqueue_many([{}] * 20)
    running = "SELECT count(*) FROM faultline.jobs WHERE state = 'running' AND queue = 'slow'"
    with working(shop, queues={"slow": 2, "default": None}, concurrency=4) as worker:
        wait_until(lambda: value(conn, running) == 2, "the slow jobs")
        shop.tasks["count"].enqueue_many([{}] * 2_000)
        wait_until(lambda: count(conn, "faultline.ledger") == 2_000, "the end of the others")
        assert value(conn, running) == 2
        assert value(conn, QUEUED) == 18
        worker.call(gate.set)
        wait_until(lambda: count(conn, "faultline.ledger") == 2_020, "the end of all jobs")
    assert most_leases(conn)["slow"] == 2
    assert value(conn, RELEASED_SLOW) == 0  # none was claimed too early


def test_a_queue_gets_its_part_while_others_are_claimed_ahead(
    shop: Faultline, conn: Connection
) -> None:
    """Short jobs fill the worker's buffer; a queue with slots still gets its jobs."""
    shop.tasks["count"].enqueue_many([{}] * 10_000)
    with working(shop, queues={"billing": 1, "default": None}, concurrency=2):
        wait_until(lambda: count(conn, "faultline.ledger") > 500, "a rate of ended jobs")
        job_id = shop.tasks["charge"].enqueue().job_id
        assert ended(shop, job_id).state is JobState.SUCCEEDED
        assert value(conn, QUEUED) > 0


def test_short_jobs_of_a_queue_with_slots_do_not_make_others_be_claimed_ahead(
    shop: Faultline, conn: Connection
) -> None:
    """The others may take long, and would wait behind each other."""
    gate = asyncio.Event()

    @shop.task(name="stuck", queue="slow")
    async def stuck(job: Job) -> None:
        await asyncio.wait_for(gate.wait(), LIMIT_SECONDS)

    shop.tasks["charge"].enqueue_many([{}] * 10_000)
    running = "SELECT count(*) FROM faultline.jobs WHERE state = 'running' AND queue = 'slow'"
    with working(shop, queues={"billing": 8, "slow": None}, concurrency=10) as worker:
        wait_until(lambda: count(conn, "faultline.ledger") > 500, "a rate of ended jobs")
        stuck.enqueue_many([{}] * 100)
        wait_until(lambda: value(conn, running) >= 2, "the slow jobs")
        assert value(conn, running) <= 10
        worker.call(gate.set)
    assert value(conn, RELEASED_SLOW) <= 10  # by the drain at most


def test_weights_decide_how_many_jobs_of_each_queue_end_under_backlog(
    shop: Faultline, conn: Connection
) -> None:
    for name in ("charge", "send"):
        shop.tasks[name].enqueue_many([{}] * 2_000)
    queues = {"billing": QueueShare(weight=3), "mail": QueueShare(weight=1)}
    with working(shop, queues=queues, concurrency=4, claim_ahead=0, max_jobs=400):
        wait_until(lambda: count(conn, "faultline.ledger") == 400, "the end of 400 jobs")
    by_queue = dict(
        conn.execute(
            "SELECT queue, count(*) FROM faultline.jobs WHERE state = 'succeeded' GROUP BY queue"
        ).fetchall()
    )
    assert abs(by_queue["billing"] - 300) <= 4
    assert by_queue["mail"] == 400 - by_queue["billing"]


def test_jobs_of_unknown_tasks_give_their_slots_back(shop: Faultline, conn: Connection) -> None:
    insert = "SELECT job_id FROM faultline.enqueue('unknown', '{}', 'billing')"
    for _ in range(5):
        conn.execute(insert)
    with working(shop, queues={"billing": 1}):
        job_id: UUID = shop.tasks["charge"].enqueue().job_id
        assert ended(shop, job_id).state is JobState.SUCCEEDED
    assert most_leases(conn)["billing"] == 1


def test_a_draining_worker_has_no_more_jobs_to_release_than_slots(
    shop: Faultline, conn: Connection
) -> None:
    shop.tasks["send"].enqueue_many([{}] * 3_000)
    with working(shop, queues={"mail": 3}):
        wait_until(lambda: count(conn, "faultline.ledger") > 5, "some jobs")
    assert value(conn, "SELECT count(*) FROM faultline.jobs WHERE state = 'running'") == 0
    assert value(conn, "SELECT max(attempts) FROM faultline.jobs") == 1
    assert count(conn, "faultline.attempts_log") <= 3


def test_the_start_of_a_worker_names_its_slots_and_weights(
    shop: Faultline, events: EventTap
) -> None:
    with working(shop, queues={"billing": 5, "mail": QueueShare(weight=2), "*": 10}):
        wait_until(lambda: events.of("worker_started"), "the worker")
    [started] = events.of("worker_started")
    assert started["queue_slots"] == {"billing": 5, "*": 10}
    assert started["queue_weights"] == {"mail": 2}
    assert started["queues"] == ["billing", "default", "mail"]


def test_the_start_of_a_worker_without_them_does_not(shop: Faultline, events: EventTap) -> None:
    with working(shop):
        wait_until(lambda: events.of("worker_started"), "the worker")
    [started] = events.of("worker_started")
    assert not {"queue_slots", "queue_weights"} & set(started)


def test_a_worker_in_a_program_takes_slots(shop: Faultline, conn: Connection) -> None:
    async def program() -> None:
        async with shop.worker(queues={"billing": 1, "mail": 1}, max_jobs=42) as worker:
            await worker.wait()

    enqueue_mixed(shop, 20)
    asyncio.run(program())
    assert most_leases(conn) == {"billing": 1, "mail": 1}
