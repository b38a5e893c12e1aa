"""Which steps of a handler are points, and the lines that are reported for them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from faultline.job import Job
from faultline.model import Claim
from faultline.testing import PointKind
from faultline.testing.zombies.instrumentation import InstrumentedCoroutine, patched_driver
from faultline.testing.zombies.monitor import AttemptMonitor
from faultline.testing.zombies.points import handler_code
from faultline.testing.zombies.report import Story
from faultline.workers.leases import Lease

Handler = Callable[[], Coroutine[Any, Any, Any]]


def make_monitor(handler: Callable[..., Any]) -> AttemptMonitor:
    claim = Claim(str(uuid4()), 1, str(uuid4()), "task", "default", "{}", 1, 5, 0, 5, "")
    job = Job(claim, Lease(claim, sent_at=0, lease_seconds=15), lambda: None, None)  # type: ignore[arg-type,return-value]
    return AttemptMonitor("A", job, handler_code(handler), Story(), None)


def run_instrumented(handler: Handler) -> tuple[Any, list[str]]:
    """Return the handler's result and the lines where it waited, from its first line."""
    monitor = make_monitor(handler)

    async def main() -> Any:
        return await InstrumentedCoroutine(handler(), monitor)

    value = asyncio.run(main())
    first = handler_code(handler).co_firstlineno
    assert all(point.kind is PointKind.AWAIT for point in monitor.points)
    return value, [
        f"{int(point.where.split(':')[1]) - first} {point.what} {point.nth}"
        for point in monitor.points
    ]


def done_soon() -> asyncio.Future[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, None)
    return future


class SuspendsOften:
    def __await__(self) -> Any:
        for _ in range(5):
            yield
        return "done"


def test_each_suspending_await_is_a_point_every_time() -> None:
    async def handler() -> str:
        for _ in range(2):
            await asyncio.sleep(0)  # named in the points, as are all of these sleeps
        await asyncio.sleep(0.001)
        return "done"

    assert run_instrumented(handler) == (
        "done",
        ["2 await sleep() 1", "2 await sleep() 2", "3 await sleep() 1"],
    )


def test_an_await_that_suspends_many_times_is_one_point() -> None:
    async def handler() -> Any:
        return await SuspendsOften()

    value, points = run_instrumented(handler)
    assert value == "done"
    assert len(points) == 1


def test_an_await_that_does_not_suspend_is_no_point() -> None:
    async def nothing() -> int:
        return 1

    async def handler() -> int:
        return await nothing() + await nothing()

    assert run_instrumented(handler) == (2, [])


def test_awaits_in_the_users_own_coroutines_are_points() -> None:
    async def step() -> None:
        await done_soon()
        await done_soon()

    async def handler() -> None:
        await step()

    monitor = make_monitor(handler)

    async def main() -> None:
        await InstrumentedCoroutine(handler(), monitor)

    asyncio.run(main())
    first = inspect.getsourcelines(step)[1]
    assert [int(point.where.split(":")[1]) - first for point in monitor.points] == [1, 2]


def test_waiting_for_several_tasks_is_one_point() -> None:
    async def handler() -> list[Any]:
        return await asyncio.gather(asyncio.sleep(0, 1), asyncio.sleep(0.001, 2))

    assert run_instrumented(handler) == ([1, 2], ["1 await a future 1"])


def test_errors_and_cancellation_reach_an_instrumented_handler() -> None:
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

    value, points = run_instrumented(handler)
    assert (value, seen, len(points)) == ("survived", ["timeout"], 2)


def test_the_driver_is_restored() -> None:
    before = psycopg.Connection.wait, psycopg.AsyncConnection.wait
    with patched_driver():
        assert before[0] is not psycopg.Connection.wait
        assert before[1] is not psycopg.AsyncConnection.wait
    assert (psycopg.Connection.wait, psycopg.AsyncConnection.wait) == before
