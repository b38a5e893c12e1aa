"""Limits in whole workers: exact, and a free place is used without polling."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from datetime import timedelta

import pytest

from faultline import Faultline, InvalidInput, Job, Limit, Rate
from faultline.reconciler import Reconciler
from tests.protocol.steps import Connection, expire, rows, value
from tests.running import background, working
from tests.waiting import wait_until

from .steps import assert_consistent, claim_all, enqueue, places, set_limit

# Notifications before this are lost, and then the worker looks again at its next poll.
LISTENERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND application_name = 'faultline worker' AND query LIKE '%%faultline.claim%%'"
    " AND state = 'idle'  -- it claims after LISTEN"
)


class Highest:
    """The most handlers that ever ran at once, by key."""

    def __init__(self) -> None:
        self.now: dict[object, int] = {}
        self.most: dict[object, int] = {}
        self._lock = threading.Lock()

    def enter(self, key: object) -> None:
        with self._lock:
            self.now[key] = self.now.get(key, 0) + 1
            self.most[key] = max(self.most.get(key, 0), self.now[key])

    def leave(self, key: object) -> None:
        with self._lock:
            self.now[key] -= 1


def test_workers_never_run_more_jobs_of_a_key_than_its_limit(
    app: Faultline, conn: Connection
) -> None:
    highest = Highest()

    @app.task(name="charge", concurrency=Limit(2, key="customer"))
    async def charge(job: Job, customer: int) -> None:
        highest.enter(customer)
        await asyncio.sleep(0)  # lets the other attempts of this worker start
        highest.leave(customer)

    jobs = 120
    charge.enqueue_many([{"customer": number % 3} for number in range(jobs)])
    done = "SELECT count(*) FROM faultline.jobs WHERE state = 'succeeded'"
    with ExitStack() as stack:
        for name in ("first", "second"):
            stack.enter_context(working(app, worker_id=name, concurrency=10))
        wait_until(lambda: value(conn, done) == jobs, "all jobs")
    assert set(highest.most) == {0, 1, 2}
    assert max(highest.most.values()) == 2
    assert places(conn) == {}
    assert_consistent(conn)


def test_a_free_place_is_used_without_waiting_for_a_poll(app: Faultline, conn: Connection) -> None:
    @app.task(name="charge", concurrency=1)
    async def charge(job: Job) -> None: ...

    charge.enqueue_many([{}] * 10)
    done = "SELECT count(*) FROM faultline.jobs WHERE state = 'succeeded'"
    with working(app, poll_seconds=3600.0):
        wait_until(lambda: value(conn, done) == 10, "all jobs")


def test_a_job_starts_when_its_rate_allows_it_without_waiting_for_a_poll(
    app: Faultline, conn: Connection
) -> None:
    @app.task(name="charge", rate=Rate(20, per=timedelta(seconds=1)))
    async def charge(job: Job) -> None: ...

    done = "SELECT count(*) FROM faultline.jobs WHERE state = 'succeeded'"
    with working(app, poll_seconds=3600.0):
        wait_until(lambda: value(conn, LISTENERS) == 1, "the listener")
        charge.enqueue_many([{}] * 5)
        wait_until(lambda: value(conn, done) == 5, "all jobs")


def test_the_places_of_a_dead_worker_are_free_once_its_jobs_are_reconciled(
    app: Faultline, conn: Connection
) -> None:
    set_limit(conn, "task:charge", 1)
    enqueue(conn, [{}] * 2)
    [lease] = claim_all(conn, worker="dead")

    @app.task(name="charge")
    async def charge(job: Job) -> None: ...

    expire(conn, lease)
    done = "SELECT count(*) FROM faultline.jobs WHERE state = 'succeeded'"
    with working(app):
        wait_until(lambda: value(conn, done) == 2, "both jobs")


def test_the_leading_reconciler_repairs_a_line_that_was_not_woken(
    app: Faultline, conn: Connection, database_url: str
) -> None:
    set_limit(conn, "task:charge", 0)
    enqueue(conn, [{}] * 2)
    assert claim_all(conn) == []
    conn.execute("UPDATE faultline.limits SET max_running = 1")  # not by set_limit
    due = "SELECT count(*) FROM faultline.jobs WHERE next_run_at <= clock_timestamp()"
    with background(lambda: Reconciler(database_url).run()):
        wait_until(lambda: value(conn, due) == 1, "the next job")


def test_a_worker_declares_the_limits_of_its_code(app: Faultline, conn: Connection) -> None:
    @app.task(name="charge", concurrency=Limit(2, key="customer"), rate=Rate(5, per=2, burst=3))
    async def charge(job: Job, customer: int = 7) -> None: ...

    app.limit_queue("default", concurrency=9)
    query = (
        "SELECT name, max_running, rate_jobs, rate_seconds, burst FROM faultline.limits ORDER BY 1"
    )
    with working(app):
        wait_until(lambda: len(rows(conn, query)) == 3, "the limits")
    assert rows(conn, query) == [
        ("key:charge.customer", 2, None, None, None),
        ("queue:default", 9, None, None, None),
        ("task:charge", None, 5, 2.0, 3),
    ]
    arguments = "SELECT task, limit_name, argument, fallback FROM faultline.limit_arguments"
    assert rows(conn, arguments) == [("charge", "key:charge.customer", "customer", "7")]


def test_tasks_share_a_limit_by_its_name(app: Faultline) -> None:
    shared = Limit(2, key="customer", name="customer")

    @app.task(name="charge", concurrency=shared)
    async def charge(job: Job, customer: int) -> None: ...

    @app.task(name="refund", concurrency=shared)
    async def refund(job: Job, customer: int) -> None: ...

    assert app.declared_limits() == {"key:customer": {"max_running": 2}}

    @app.task(name="mail", concurrency=Limit(3, key="customer", name="customer"))
    async def mail(job: Job, customer: int) -> None: ...

    with pytest.raises(InvalidInput, match="different values for the limit key:customer"):
        app.declared_limits()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency": -1}, "max_running must be 0"),
        ({"concurrency": True}, "concurrency must be a number or a Limit"),
        ({"concurrency": "3"}, "concurrency must be a number or a Limit"),
        ({"rate": 3}, "rate must be a Rate"),
        ({"concurrency": Limit(1, key="invoice")}, "has no argument 'invoice'"),
    ],
)
def test_an_invalid_limit_of_a_task_is_refused_at_its_definition(
    app: Faultline, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):

        @app.task(name="charge", **options)  # type: ignore[call-overload]
        async def charge(job: Job, customer: int) -> None: ...


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rate(0, per=1), "jobs must be 1"),
        (lambda: Rate(1, per=0), "per must be at least"),
        (lambda: Rate(1, per=1, burst=0), "burst must be 1"),
        (lambda: Limit(1, name="customer"), "needs a key"),
        (lambda: Limit(1, key="customer", name="a b"), "not the name of a limit"),
    ],
)
def test_invalid_limits_are_refused(make: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make()  # type: ignore[operator]
