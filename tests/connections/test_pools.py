"""A pool whose server is away is retried often, not after psycopg's long backoff."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from psycopg_pool import PoolClosed, PoolTimeout

from faultline.errors import DatabaseUnavailable
from faultline.postgres.errors import pool_errors
from faultline.postgres.sessions import make_async_pool, make_pool
from tests.waiting import LIMIT_SECONDS, wait_until

# Each try calls twice, with and without TLS. A pool's own pauses are 1 s, 2 s, 4 s, and so on: as long as
# the test waits, it would have called a dozen times.
CALLS = 14


class Refusing:
    """Listens at a server's address, closes each connection, and counts them."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.callers = 0
        self.url = f"postgresql://an_account@127.0.0.1:{self._listener.getsockname()[1]}/nowhere"
        threading.Thread(target=self._refuse, daemon=True).start()

    def _refuse(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                self.callers += 1
                caller.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def refusing() -> Iterator[Refusing]:
    with contextlib.closing(Refusing()) as server:
        yield server


def test_a_pool_keeps_retrying_while_a_caller_waits(refusing: Refusing) -> None:
    with ThreadPoolExecutor(1) as executor:
        with make_pool(refusing.url, max_size=2, application_name="test") as pool:
            asking = executor.submit(pool.getconn, 2 * LIMIT_SECONDS)
            wait_until(lambda: refusing.callers >= CALLS, "that many tries")
        with pytest.raises(PoolClosed):
            asking.result(LIMIT_SECONDS)


def test_an_async_pool_keeps_retrying_while_a_caller_waits(refusing: Refusing) -> None:
    async def ask() -> None:
        async with make_async_pool(refusing.url, max_size=2, application_name="test") as pool:
            asking = asyncio.create_task(pool.getconn(2 * LIMIT_SECONDS))
            await asyncio.to_thread(
                wait_until, lambda: refusing.callers >= CALLS, "that many tries"
            )
        with pytest.raises(PoolClosed):
            await asking

    asyncio.run(ask())


def test_a_caller_waits_no_longer_than_its_timeout(refusing: Refusing) -> None:
    async def ask() -> None:
        async with make_async_pool(refusing.url, max_size=2, application_name="test") as pool:
            with pytest.raises(PoolTimeout):
                await pool.getconn(timeout=0.6)

    asyncio.run(ask())
    with (
        make_pool(refusing.url, max_size=2, application_name="test") as pool,
        pytest.raises(PoolTimeout),
    ):
        pool.getconn(timeout=0.6)


def test_a_pool_that_gave_up_says_where_it_could_not_reach(refusing: Refusing) -> None:
    with (
        pytest.raises(DatabaseUnavailable, match="an_account@127") as error,
        pool_errors(refusing.url),
    ):
        raise PoolTimeout("no connection")
    assert error.value.hint is not None
