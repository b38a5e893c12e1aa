"""A pool whose server is away is asked again and again: nobody waits for a try that is a minute off."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from psycopg_pool import PoolTimeout

from faultline.database import make_async_pool, make_pool, pool_errors
from faultline.errors import DatabaseUnavailable

# A pool's own pauses are 1 s, 2 s, 4 s: in this time it would have tried twice.
PATIENCE_SECONDS = 2.0
TRIES = 5


class Refusing:
    """Where a server should be: hangs up on everyone, and counts them."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.callers = 0
        self.url = f"postgresql://somebody@127.0.0.1:{self._listener.getsockname()[1]}/nowhere"
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


def test_a_pool_goes_on_trying_while_somebody_waits(refusing: Refusing) -> None:
    with (
        make_pool(refusing.url, max_size=2, application_name="test") as pool,
        pytest.raises(PoolTimeout),
    ):
        pool.getconn(timeout=PATIENCE_SECONDS)
    assert refusing.callers >= TRIES


def test_so_does_an_async_one(refusing: Refusing) -> None:
    async def ask() -> None:
        async with make_async_pool(refusing.url, max_size=2, application_name="test") as pool:
            with pytest.raises(PoolTimeout):
                await pool.getconn(timeout=PATIENCE_SECONDS)

    asyncio.run(ask())
    assert refusing.callers >= TRIES


def test_a_pool_that_gave_up_says_where_it_could_not_reach(refusing: Refusing) -> None:
    with (
        pytest.raises(DatabaseUnavailable, match="somebody@127") as error,
        pool_errors(refusing.url),
    ):
        raise PoolTimeout("no connection")
    assert error.value.hint is not None
