"""The code and the move of rq.md: each job takes effect once."""

from __future__ import annotations

from datetime import timedelta

import pytest
from redis import Redis
from rq import Queue

from tests.coming_from.conftest import Open
from tests.coming_from.migration import Migration
from tests.running import Connection
from tests.waiting import wait_until

OLD_WORKER = "rq worker --with-scheduler default"
NEW_WORKER = "faultline worker --app shop:app"


@pytest.fixture
def page(open_page: Open, redis_url: str) -> Migration:
    return open_page("rq.md", RQ_REDIS_URL=redis_url)


def depth(page: Migration) -> dict[str, int]:
    lines = page.run("python depth.py").splitlines()
    return {name: int(count) for name, count in map(str.split, lines)}


EMPTY = {"queued": 0, "running": 0, "scheduled": 0, "deferred": 0, "failed": 0}


@pytest.mark.slow
def test_old_workers_drain_while_new_jobs_run_on_faultline(page: Migration) -> None:
    page.run("faultline migrate")
    page.run("python billing.py 1 11")
    page.environment["CHARGE_QUEUE"] = "faultline"
    page.run_other("python billing.py 11 21")
    assert depth(page) == {**EMPTY, "queued": 10}
    assert page.unfinished() == 10
    with page.running(OLD_WORKER), page.running(NEW_WORKER):
        page.wait_until_paid(20)
        wait_until(lambda: page.unfinished() == 0, "the end of the new jobs")
    assert depth(page) == EMPTY
    assert page.paid() == {n: "rq" if n < 11 else "faultline" for n in range(1, 21)}


@pytest.mark.slow
def test_the_old_function_forwards_a_job_once(
    page: Migration, redis_url: str, conn: Connection
) -> None:
    page.run("python billing.py 1 11")
    page.rewrite("old_shop.py")
    page.run_other("rq worker --burst default")
    assert page.unfinished() == 10
    assert depth(page) == EMPTY
    with Redis.from_url(redis_url) as client:  # as if the worker had died before RQ noted the end
        queue = Queue("default", connection=client)
        for [key] in conn.execute("SELECT idempotency_key FROM faultline.jobs").fetchall():
            job = queue.fetch_job(key.removeprefix("rq-"))
            assert job is not None
            queue.enqueue_job(job)
        assert queue.count == 10
    page.run_other("rq worker --burst default")
    assert page.unfinished() == 10


@pytest.mark.slow
def test_a_burst_leaves_scheduled_jobs(page: Migration, redis_url: str) -> None:
    with Redis.from_url(redis_url) as client:
        Queue("default", connection=client).enqueue_in(timedelta(days=1), "old_shop.charge", 1)
    page.run_other("rq worker --burst default")
    assert depth(page) == {**EMPTY, "scheduled": 1}
