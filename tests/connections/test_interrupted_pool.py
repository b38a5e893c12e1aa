"""Ending an attempt that takes or returns a pooled connection loses no connection."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Coroutine, Generator
from types import FrameType
from typing import Any

import psycopg_pool
import pytest
from psycopg_pool import PoolClosed

import faultline.fenced_block
import faultline.postgres.pools
from faultline import Faultline, Job
from faultline.handler_interrupts import AttemptAborted
from faultline.postgres.sessions import AsyncPool, Pool, make_async_pool, make_pool
from faultline.statements import protocol
from faultline.steady import steady_now
from faultline.workers.attempt import InterruptibleCall
from faultline.workers.leases import Lease
from tests.waiting import LIMIT_SECONDS, wait_until

TRACED = (
    psycopg_pool.__path__[0],
    faultline.postgres.pools.__file__,
    faultline.fenced_block.__file__,
)
MANY = 5000


def claimed_job(
    app: Faultline, pool: Callable[[], Pool], async_pool: AsyncPool | None = None
) -> Job:
    @app.task()
    def step(job: Job) -> None: ...

    step.enqueue()
    (claim,) = app.execute(
        protocol.claim("w", ["default"], batch_size=1, lease_seconds=3600, resume_after=None)
    )
    lease = Lease(claim, sent_at=steady_now(), lease_seconds=3600)
    return Job(claim, lease, pool, async_pool)


class InterruptAt:
    """Calls `interrupt` at the n-th line that a thread runs in a pool or job block."""

    def __init__(self, n: int) -> None:
        self.left = n
        self.interrupt: Callable[[], None] = lambda: None

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(TRACED):
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                self.interrupt()
        return self


@pytest.mark.parametrize("has_connection", [True, False], ids=["ready", "connecting"])
def test_an_interrupt_at_any_line_of_a_pool_loses_no_connection(
    app: Faultline, database_url: str, has_connection: bool
) -> None:
    interrupted = 0
    with make_pool(database_url, max_size=1, application_name="test") as pool:
        job = claimed_job(app, lambda: pool)

        def step(trace: InterruptAt) -> None:
            sys.settrace(trace)
            try:
                with job.fenced() as tx:
                    tx.execute("SELECT 1")
            finally:
                sys.settrace(None)

        for n in range(1, MANY, 1 if has_connection else 4):
            if not has_connection:
                pool.drain()
            trace = InterruptAt(n)
            call = InterruptibleCall(step, trace)
            trace.interrupt = call.interrupt
            try:
                call()
            except AttemptAborted:
                interrupted += 1
            pool.putconn(pool.getconn(timeout=LIMIT_SECONDS))  # PoolTimeout if it was lost
            if trace.left > 0:
                break
        stats = pool.get_stats()
    assert trace.left > 0, "more lines than were tried"
    assert interrupted > 20
    assert (stats["pool_available"], stats["pool_size"]) == (1, 1)


class CancelAt:
    """Awaits a coroutine, and cancels the current task at its n-th suspension."""

    def __init__(self, work: Coroutine[Any, Any, None], n: int) -> None:
        self._work, self.left = work, n

    def __await__(self) -> Generator[Any, Any, None]:
        task = asyncio.current_task()
        assert task is not None
        steps = self._work.__await__()
        try:
            awaited = next(steps)
            while True:
                self.left -= 1
                if self.left == 0:
                    task.cancel()
                try:
                    answer = yield awaited
                except BaseException as error:
                    awaited = steps.throw(error)
                else:
                    awaited = steps.send(answer)
        except StopIteration:
            return


@pytest.mark.parametrize("state", ["connecting", "contended"])
def test_a_cancellation_at_any_await_of_a_pool_loses_no_connection(
    app: Faultline, database_url: str, state: str
) -> None:
    async def cancel_at_every_await() -> tuple[int, dict[str, int]]:
        cancelled = 0
        async with make_async_pool(database_url, max_size=1, application_name="test") as pool:
            job = claimed_job(app, lambda: pytest.fail("not this pool"), pool)

            async def step() -> None:
                async with job.fenced() as tx:
                    await tx.execute("SELECT 1")

            async def struck(point: CancelAt) -> None:
                await point

            for n in range(1, MANY):
                if state == "connecting":
                    await pool.drain()
                others = [asyncio.create_task(step()) for _ in range(state == "contended")]
                point = CancelAt(step(), n)
                task = asyncio.create_task(struck(point))
                await asyncio.wait({task, *others}, timeout=LIMIT_SECONDS)
                for other in others:
                    other.result()
                cancelled += task.cancelled()
                conn = await pool.getconn(timeout=LIMIT_SECONDS)  # PoolTimeout if it was lost
                await pool.putconn(conn)
                if point.left > 0:
                    return cancelled, pool.get_stats()
        raise AssertionError("more awaits than were tried")

    cancelled, stats = asyncio.run(cancel_at_every_await())
    assert cancelled >= 2
    assert (stats["pool_available"], stats["pool_size"]) == (1, 1)


def test_a_cancellation_while_the_pool_is_locked_loses_no_connection(database_url: str) -> None:
    async def cancel_both_ways() -> dict[str, int]:
        async with make_async_pool(database_url, max_size=1, application_name="test") as pool:
            conn = await pool.getconn()
            async with pool._lock:
                await cancel_at_its_first_await(pool.putconn(conn))
            conn = await pool.getconn(timeout=LIMIT_SECONDS)  # PoolTimeout if it was lost
            await pool.putconn(conn)
            async with pool._lock:
                await cancel_at_its_first_await(pool.getconn())
            conn = await pool.getconn(timeout=LIMIT_SECONDS)
            await pool.putconn(conn)
            return pool.get_stats()

    async def cancel_at_its_first_await(work: Coroutine[Any, Any, Any]) -> None:
        async def struck() -> None:
            await CancelAt(work, 1)

        task = asyncio.create_task(struck())
        await asyncio.wait({task}, timeout=LIMIT_SECONDS)
        assert task.cancelled()

    stats = asyncio.run(cancel_both_ways())
    assert (stats["pool_available"], stats["pool_size"]) == (1, 1)


def test_an_interrupt_ends_the_wait_for_a_connection(app: Faultline, database_url: str) -> None:
    """The pool defers an interrupt, but not for as long as it has no free connection."""
    with (
        contextlib.suppress(PoolClosed),
        make_pool(database_url, max_size=1, application_name="test") as pool,
    ):
        job = claimed_job(app, lambda: pool)
        conn = pool.getconn()

        def step() -> None:
            with job.fenced():
                pytest.fail("there was no connection")

        call = InterruptibleCall(step)

        async def run() -> None:
            thread = asyncio.create_task(asyncio.to_thread(call))
            await asyncio.to_thread(wait_until, lambda: len(pool._line) == 1, "a waiter")
            call.interrupt()
            await asyncio.wait({thread}, timeout=LIMIT_SECONDS)
            with pytest.raises(AttemptAborted):
                thread.result()

        asyncio.run(run())
        pool.putconn(conn)
        pool.putconn(pool.getconn(timeout=LIMIT_SECONDS))
