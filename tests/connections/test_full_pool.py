"""A pool whose connections are all in use serves its waiters in FIFO order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import psycopg
import pytest
from psycopg_pool import PoolTimeout

from faultline.postgres.pools import RetryingAsyncPool, RetryingPool
from faultline.postgres.sessions import make_async_pool, make_pool
from tests.running import Connection, value
from tests.waiting import LIMIT_SECONDS, block_thread, idle, wait_until, yield_to_loop

# A waiter polls its pool every half second: one that had to queue again would be behind the others.
SEVERAL_TURNS = 1.3
BORROWERS = ["first", "second", "third"]


@contextlib.contextmanager
def pool_of_one(url: str) -> Iterator[RetryingPool]:
    pool = make_pool(url, max_size=1, application_name="test")
    assert isinstance(pool, RetryingPool)
    with pool:
        yield pool


@contextlib.contextmanager
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(len(BORROWERS)) as some:
        yield some


def test_threads_get_connections_in_fifo_order(database_url: str) -> None:
    served: list[str] = []
    with pool_of_one(database_url) as pool, threads() as some:
        held = pool.getconn()

        def borrow(name: str) -> None:
            conn = pool.getconn(timeout=LIMIT_SECONDS)
            served.append(name)
            pool.putconn(conn)

        borrowing: list[Future[None]] = []
        for name in BORROWERS:
            borrowing.append(some.submit(borrow, name))
            wait_until(lambda: len(pool._line) == len(borrowing), f"the {name} in line")
        block_thread(SEVERAL_TURNS)
        pool.putconn(held)
        for each in borrowing:
            each.result(LIMIT_SECONDS)
    assert served == BORROWERS


def test_coroutines_get_connections_in_fifo_order(database_url: str) -> None:
    served: list[str] = []

    async def main() -> None:
        pool = make_async_pool(database_url, max_size=1, application_name="test")
        assert isinstance(pool, RetryingAsyncPool)
        async with pool:
            held = await pool.getconn()

            async def borrow(name: str) -> None:
                conn = await pool.getconn(timeout=LIMIT_SECONDS)
                served.append(name)
                await pool.putconn(conn)

            borrowing = []
            for name in BORROWERS:
                borrowing.append(asyncio.create_task(borrow(name)))
                await yield_to_loop()
                assert len(pool._line) == len(borrowing)
            await idle(SEVERAL_TURNS)
            await pool.putconn(held)
            await asyncio.gather(*borrowing)

    asyncio.run(main())
    assert served == BORROWERS


def test_a_waiter_is_served_after_an_outage_of_the_server(
    database_url: str, server_url: str, conn: Connection
) -> None:
    """The connection that it waits for is returned broken; opening another one fails."""
    allow = f"ALTER DATABASE {conn.info.dbname} ALLOW_CONNECTIONS "
    with (
        psycopg.connect(server_url, autocommit=True) as admin,
        pool_of_one(database_url) as pool,
        threads() as some,
    ):
        held = pool.getconn()
        waiting = some.submit(pool.getconn, LIMIT_SECONDS)
        wait_until(lambda: len(pool._line) == 1, "a waiter")
        block_thread(SEVERAL_TURNS)
        admin.execute(f"{allow} false")
        try:
            admin.execute("SELECT pg_terminate_backend(%s, 10000)", [held.info.backend_pid])
            with pytest.raises(psycopg.OperationalError):
                held.execute("SELECT 1")
            pool.putconn(held)
            wait_until(lambda: pool.get_stats().get("connections_errors"), "a try that failed")
        finally:
            admin.execute(f"{allow} true")
        served = waiting.result(LIMIT_SECONDS)
        assert value(served, "SELECT 42") == 42
        pool.putconn(served)


def test_a_waiter_that_times_out_leaves_the_queue(database_url: str) -> None:
    with pool_of_one(database_url) as pool:
        held = pool.getconn()
        for _ in range(2):
            with pytest.raises(PoolTimeout, match="all connections are in use"):
                pool.getconn(timeout=0.05)
        assert len(pool._line) == 0
        pool.putconn(held)
        for _ in range(2):  # the waiters that timed out hold no place
            pool.putconn(pool.getconn(timeout=LIMIT_SECONDS))


def test_a_waiter_that_is_cancelled_leaves_the_queue(database_url: str) -> None:
    async def main() -> None:
        async with make_async_pool(database_url, max_size=1, application_name="test") as pool:
            held = await pool.getconn()
            for given in (False, True):  # cancelled in line, and just when it was given its place
                waiting = asyncio.create_task(pool.getconn(timeout=LIMIT_SECONDS))
                await yield_to_loop()
                if given:
                    await pool.putconn(held)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            for _ in range(2):
                await pool.putconn(await pool.getconn(timeout=LIMIT_SECONDS))

    asyncio.run(main())
