"""Priorities without starvation: however many jobs come first."""

from __future__ import annotations

from uuid import UUID

import pytest

from faultline import Faultline, Job, JobState
from tests.running import Connection, count, ended, value, working
from tests.waiting import wait_until

BACKLOG = "SELECT count(*) FROM faultline.jobs WHERE state = 'queued' AND priority = {}"


@pytest.fixture
def endless(app: Faultline) -> Faultline:
    """Each job of `high` and `middle` enqueues the next: their lanes stay full."""

    @app.task(name="high")
    async def high(job: Job) -> None:
        await high.options(priority=0).enqueue_async()

    @app.task(name="middle")
    async def middle(job: Job) -> None:
        await middle.options(priority=4).enqueue_async()

    @app.task(name="low")
    async def low(job: Job) -> None: ...

    return app


def fill(app: Faultline, name: str, priority: int, jobs: int) -> None:
    app.tasks[name].options(priority=priority).enqueue_many([{}] * jobs)


def enqueue_low(app: Faultline) -> UUID:
    return app.tasks["low"].options(priority=9).enqueue().job_id


@pytest.mark.parametrize("claim_ahead", [0, 500])
def test_a_job_of_the_lowest_priority_runs_while_the_highest_lane_stays_full(
    endless: Faultline, conn: Connection, claim_ahead: int
) -> None:
    fill(endless, "high", 0, 2_000)
    with working(endless, concurrency=2, claim_ahead=claim_ahead):
        wait_until(lambda: count(conn, "faultline.ledger") > 20, "jobs of the highest priority")
        assert ended(endless, enqueue_low(endless)).state is JobState.SUCCEEDED
        assert value(conn, BACKLOG.format(0)) > 500


def test_without_the_rule_it_does_not_run(endless: Faultline, conn: Connection) -> None:
    """The control."""
    fill(endless, "high", 0, 100)
    low = enqueue_low(endless)
    with working(endless, concurrency=2, claim_ahead=0, strict_priority=True):
        wait_until(lambda: count(conn, "faultline.ledger") > 400, "jobs of the highest priority")
        assert endless.get(low).state is JobState.QUEUED
        assert endless.get(low).attempts == 0
        assert value(conn, BACKLOG.format(0)) > 50


def test_a_priority_between_two_full_lanes_is_reached_as_well(
    endless: Faultline, conn: Connection
) -> None:
    """Searching in the reverse order would leave it out."""
    fill(endless, "high", 0, 100)
    fill(endless, "middle", 4, 100)
    fill(endless, "high", 9, 2_000)
    job_id = endless.tasks["low"].options(priority=7).enqueue().job_id
    with working(endless, concurrency=1, claim_ahead=0):
        assert ended(endless, job_id).state is JobState.SUCCEEDED
        assert value(conn, BACKLOG.format(9)) > 50


def test_the_bound_holds_for_the_claims_of_a_worker(endless: Faultline, conn: Connection) -> None:
    """With two priorities in use, any 40 claims in a row reach the lower one."""
    fill(endless, "high", 0, 300)
    fill(endless, "low", 9, 300)
    with working(endless, concurrency=1, claim_ahead=0, max_jobs=200):
        wait_until(lambda: count(conn, "faultline.ledger") == 200, "200 jobs")
    order = conn.execute("""
        SELECT j.priority FROM faultline.jobs AS j WHERE j.state = 'succeeded' ORDER BY j.claimed_at
    """).fetchall()
    priorities = [priority for (priority,) in order]
    for start in range(200 - 40):
        # Claims that begin at the start of the lanes and those that continue rotate apart.
        assert 9 in priorities[start : start + 40]
    assert priorities.count(0) >= 160


def test_a_claim_that_begins_at_a_priority_goes_on_from_9_to_0(
    app: Faultline, conn: Connection
) -> None:
    enqueue = "SELECT faultline.enqueue('t', priority => %s)"
    for priority in (0, 3, 6, 9):
        conn.execute(enqueue, [priority])
    claim = "SELECT priority FROM faultline.claim('me', first_priority => 4)"
    found = [value(conn, claim) for _ in range(4)]
    assert found == [6, 9, 0, 3]
