"""Which steps of a handler are points, and where they are said to be."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from faultline.job import Job
from faultline.model import Claim
from faultline.testing import PointKind
from faultline.testing.zombies.driver import watched_driver
from faultline.testing.zombies.points import handler_code
from faultline.testing.zombies.stepping import Stepped
from faultline.testing.zombies.story import Story
from faultline.testing.zombies.watch import Watch, current
from faultline.workers.leases import Lease

Handler = Callable[[], Coroutine[Any, Any, Any]]


def a_watch(handler: Callable[..., Any]) -> Watch:
    claim = Claim(str(uuid4()), 1, str(uuid4()), "task", "default", "{}", 1, 5, 0, 5, "")
    job = Job(claim, Lease(claim, sent_at=0, lease_seconds=15), lambda: None, None)  # type: ignore[arg-type,return-value]
    return Watch("A", job, handler_code(handler), Story(), None)


def stepped(handler: Handler) -> tuple[Any, list[str]]:
    """What it returned, and the lines of the handler where it waited, counted from its first."""
    watch = a_watch(handler)

    async def main() -> Any:
        return await Stepped(handler(), watch)

    value = asyncio.run(main())
    first = handler_code(handler).co_firstlineno
    assert all(point.kind is PointKind.AWAIT for point in watch.points)
    return value, [
        f"{int(point.where.split(':')[1]) - first} {point.what} {point.nth}"
        for point in watch.points
    ]


def test_each_await_that_waits_is_a_point_each_time() -> None:
    async def handler() -> str:
        for _ in range(2):
            await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        return "done"

    assert stepped(handler) == (
        "done",
        ["2 await sleep() 1", "2 await sleep() 2", "3 await sleep() 1"],
    )


def test_an_await_that_gives_way_many_times_is_one_point() -> None:
    class Patient:
        def __await__(self) -> Any:
            for _ in range(5):
                yield
            return "at last"

    async def handler() -> Any:
        return await Patient()

    value, points = stepped(handler)
    assert value == "at last"
    assert len(points) == 1


def test_an_await_that_does_not_wait_is_none() -> None:
    async def nothing() -> int:
        return 1

    async def handler() -> int:
        return await nothing() + await nothing()

    assert stepped(handler) == (2, [])


def test_the_users_own_coroutines_are_looked_into() -> None:
    async def step() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def handler() -> None:
        await step()

    watch = a_watch(handler)

    async def main() -> None:
        await Stepped(handler(), watch)

    asyncio.run(main())
    first = inspect.getsourcelines(step)[1]
    assert [int(point.where.split(":")[1]) - first for point in watch.points] == [1, 2]


def test_tasks_are_waited_for_at_one_point() -> None:
    async def handler() -> list[Any]:
        return await asyncio.gather(asyncio.sleep(0, 1), asyncio.sleep(0.001, 2))

    assert stepped(handler) == ([1, 2], ["1 await a future 1"])


def test_errors_and_cancellation_reach_the_handler_as_they_would() -> None:
    seen: list[str] = []

    async def handler() -> str:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        except TimeoutError:
            seen.append("timeout")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_exception, ValueError("late"))
        with pytest.raises(ValueError, match="late"):
            await future
        return "survived"

    value, points = stepped(handler)
    assert (value, seen, len(points)) == ("survived", ["timeout"], 2)


def test_everything_sent_to_the_database_is_a_point(own_url: str) -> None:
    def handler() -> None:
        with psycopg.connect(own_url) as conn:
            conn.execute("CREATE TEMP TABLE t (n int)")
            conn.commit()
            conn.commit()  # there is nothing to commit
            with conn.cursor() as cursor:
                cursor.executemany("INSERT INTO t VALUES (%s)", [(1,), (2,)])
                with cursor.copy("COPY t FROM STDIN") as copy:
                    copy.write_row([3])
            conn.rollback()
            conn.autocommit = True
            with conn.transaction(), conn.transaction():
                conn.execute("SELECT\n  faultline.uuid7()")
        check = ConnectionPool.check_connection
        with ConnectionPool(own_url, min_size=1, check=check) as pool, pool.connection() as conn:
            conn.execute("SELECT 1 AS " + "long" * 20)

    watch = a_watch(handler)
    with watched_driver():
        reset = current.set(watch)
        handler()
        current.reset(reset)
    whats = [point.what for point in watch.points]
    assert whats[:2] == ["CREATE TEMP TABLE t (n int)", "COMMIT"]
    assert whats[2] == "INSERT INTO t VALUES (%s)"
    assert "COPY t FROM STDIN" in whats
    assert whats[-6:] == [
        "ROLLBACK",
        "faultline.uuid7()",
        "COMMIT",  # of the savepoint
        "COMMIT",
        "SELECT 1 AS longlonglonglonglonglonglonglonglon…",
        "COMMIT",
    ]
    assert [point.what for point in watch.points if point in watch.answers] == [
        "COMMIT",
        "ROLLBACK",
        "COMMIT",
        "COMMIT",
    ]


def test_the_driver_is_given_back_as_it_was() -> None:
    before = psycopg.Connection.wait, psycopg.AsyncConnection.wait
    with watched_driver():
        assert before[0] is not psycopg.Connection.wait
        assert before[1] is not psycopg.AsyncConnection.wait
    assert (psycopg.Connection.wait, psycopg.AsyncConnection.wait) == before
