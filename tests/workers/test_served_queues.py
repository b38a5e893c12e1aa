"""The queues that a worker serves: those of its tasks, given ones, or all."""

from __future__ import annotations

import pytest

from faultline import Faultline, InvalidInput, Job, JobState
from faultline.config import WorkerSettings
from faultline.workers import Worker
from tests.running import Connection, EventTap, ended, working
from tests.waiting import wait_until

QUEUES = "SELECT queues FROM faultline.workers WHERE id = 'me'"


@pytest.fixture
def shop(app: Faultline) -> Faultline:
    @app.task(name="charge", queue="billing")
    async def charge(job: Job) -> None: ...

    @app.task(name="send", queue="mail")
    async def send(job: Job) -> None: ...

    return app


def test_without_queues_a_worker_serves_the_queues_of_its_tasks_and_default(
    shop: Faultline, conn: Connection, events: EventTap
) -> None:
    with working(shop, worker_id="me"):
        job_id = shop.tasks["send"].enqueue().job_id
        assert ended(shop, job_id).state is JobState.SUCCEEDED
        assert conn.execute(QUEUES).fetchone() == (["billing", "default", "mail"],)
    assert events.of("queue_unused") == events.of("tasks_unserved") == []


def test_a_queue_that_no_task_uses_is_reported_with_a_near_name(
    shop: Faultline, events: EventTap
) -> None:
    with working(shop, queues=("biling", "mail", "zzz")):
        wait_until(lambda: events.of("worker_started"), "the worker")
    reasons = {event["queue"]: event["reason"] for event in events.of("queue_unused")}
    assert reasons == {
        "biling": "no task of this app uses the queue biling; did you mean billing?",
        "zzz": "no task of this app uses the queue zzz; its tasks use billing, mail",
    }


def test_tasks_whose_queue_is_not_served_are_reported_once(
    shop: Faultline, events: EventTap
) -> None:
    with working(shop, queues=("mail",)):
        wait_until(lambda: events.of("worker_started"), "the worker")
    [event] = events.of("tasks_unserved")
    assert (event["tasks"], event["queues"]) == (["charge"], ["billing"])
    assert event["reason"] == "another worker must serve the queue of 1 task"


def test_a_star_serves_queues_that_appear_while_the_worker_runs(
    shop: Faultline, conn: Connection, events: EventTap
) -> None:
    """No task uses them: a producer chose them when it enqueued."""
    insert = "SELECT job_id FROM faultline.enqueue('send', '{}', %s)"
    [before] = conn.execute(insert, ["before"]).fetchone() or ()
    with working(shop, queues=("*",), worker_id="me"):
        assert ended(shop, before).state is JobState.SUCCEEDED
        [later] = conn.execute(insert, ["vip"]).fetchone() or ()
        assert ended(shop, later).state is JobState.SUCCEEDED
        registered = wait_until(
            lambda: "vip" in (conn.execute(QUEUES).fetchone() or ([],))[0], "the registry"
        )
        assert registered
    assert events.of("queue_unused") == events.of("tasks_unserved") == []


def test_a_worker_without_a_star_leaves_other_queues_alone(
    shop: Faultline, conn: Connection
) -> None:
    insert = "SELECT job_id FROM faultline.enqueue('send', '{}', 'vip')"
    [other] = conn.execute(insert).fetchone() or ()
    with working(shop):
        ended(shop, shop.tasks["send"].enqueue().job_id)
        assert shop.get(other).state is JobState.QUEUED


def test_a_queue_name_that_cannot_exist_is_refused(shop: Faultline) -> None:
    with pytest.raises(InvalidInput, match="queue"):
        Worker(shop, WorkerSettings(queues=("no spaces",)))
