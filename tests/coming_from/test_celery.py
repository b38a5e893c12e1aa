"""The code and the move of celery.md: each job takes effect once.

The broker is kombu's file system transport, which needs no server; the slow variant has a Redis.
"""

from __future__ import annotations

import shlex

import pytest
from redis import Redis

from tests.coming_from.conftest import Open
from tests.coming_from.migration import Migration
from tests.running import Connection
from tests.waiting import wait_until

OLD_WORKER = "celery -A old_shop worker"
NEW_WORKER = "faultline worker --app shop:app"


@pytest.fixture(params=["files", pytest.param("redis", marks=pytest.mark.slow)])
def page(open_page: Open, request: pytest.FixtureRequest) -> Migration:
    if request.param == "redis":
        url = request.getfixturevalue("redis_url").replace("unix://", "redis+socket://")
        return open_page("celery.md", CELERY_BROKER_URL=url)
    page = open_page("celery.md", CELERY_BROKER_URL="filesystem://")
    messages = page.folder / "messages"
    messages.mkdir()
    for name in ("data_in", "data_out"):  # what is written is what is read
        (page.folder / name).symlink_to(messages)
    return page


def depth(page: Migration) -> str:
    return page.run("python depth.py").strip()


@pytest.mark.slow
def test_old_workers_drain_while_new_jobs_run_on_faultline(page: Migration) -> None:
    page.run("faultline migrate")
    page.run("python billing.py 1 11")
    page.environment["CHARGE_QUEUE"] = "faultline"
    page.run_other("python billing.py 11 21")
    assert (depth(page), page.unfinished()) == ("queued 10", 10)
    with page.running(OLD_WORKER), page.running(NEW_WORKER):
        page.wait_until_paid(20)
        wait_until(lambda: page.unfinished() == 0, "the end of the new jobs")
    assert depth(page) == "queued 0"
    assert page.paid() == {n: "celery" if n < 11 else "faultline" for n in range(1, 21)}


TWICE = """
import old_shop
for number in range(2):
    old_shop.charge.apply_async((1,), task_id="one")
"""


@pytest.mark.slow
def test_the_old_task_forwards_a_message_once(page: Migration, conn: Connection) -> None:
    page.run("python billing.py 1 11")
    page.rewrite("old_shop.py")
    page.run_other(f"python -c {shlex.quote(TWICE)}")
    with page.running(OLD_WORKER):
        wait_until(lambda: page.unfinished() == 11, lambda: f"11 jobs, not {page.unfinished()}")
        wait_until(lambda: depth(page) == "queued 0", "an empty queue")
    assert page.unfinished() == 11
    keys = conn.execute("SELECT idempotency_key FROM faultline.jobs").fetchall()
    assert ("celery-one",) in keys


@pytest.mark.slow
@pytest.mark.parametrize("page", ["redis"], indirect=True)
def test_a_delayed_task_is_held_by_a_worker_and_not_in_the_queue(
    page: Migration, redis_url: str
) -> None:
    later = "import old_shop; old_shop.charge.apply_async((1,), countdown=600)"
    page.run_other(f"python -c {shlex.quote(later)}")
    with page.running(OLD_WORKER), Redis.from_url(redis_url) as client:
        wait_until(lambda: client.hlen("unacked") == 1, "a task that the worker holds")
        assert depth(page) == "queued 0"
        assert "shop.charge" in page.run("celery -A old_shop inspect scheduled")
        assert "empty" in page.run("celery -A old_shop inspect active")
        assert "empty" in page.run("celery -A old_shop inspect reserved")
    assert depth(page) == "queued 1"
