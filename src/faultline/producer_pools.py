"""Connections of a producer: a pool for threads, and one for each event loop."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import TypeVar

from faultline import handler_interrupts
from faultline.errors import DatabaseUnavailable
from faultline.postgres.answer_limit import answered_within, was_unanswered
from faultline.postgres.driver import DriverError
from faultline.postgres.errors import driver_errors, is_read_only_refusal, pool_errors
from faultline.postgres.sessions import (
    AsyncPool,
    Pool,
    connect,
    is_standby,
    is_standby_async,
    make_async_pool,
    make_pool,
    open_session_async,
    run,
    run_async,
)
from faultline.statements.session_settings import CONTROL
from faultline.statements.statement import Statement

T = TypeVar("T")

PRODUCER_CONNECTIONS = 10
_SHORTEST_SECONDS = 0.1
# Pools that a forked child inherited. They are never closed: closing waits for threads that exist only
# in the parent.
_inherited: list[Pool] = []


class ProducerPools:
    """Runs single statements within a time limit; opens connections on first use."""

    def __init__(self, url: Callable[[], str], timeout_seconds: float) -> None:
        self._url = url
        self.timeout_seconds = timeout_seconds
        self._pool: Pool | None = None
        self._pool_owner = 0  # the process that opened it: a forked child needs its own
        self._opening = threading.Lock()
        self._async_opening: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            weakref.WeakKeyDictionary()
        )
        self.async_pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncPool] = (
            weakref.WeakKeyDictionary()
        )

    def execute(self, statement: Statement[T]) -> T:
        deadline = time.monotonic() + self.timeout_seconds
        url = self._url()
        with driver_errors(), handler_interrupts.held() as hold:
            pool = self._open_pool(url, deadline)
            with pool_errors(url):
                pooled = pool.getconn(_left(deadline))
            try:
                with answered_within(pooled, _left(deadline)), hold.released():
                    return run(pooled, statement)
            except DriverError as error:
                is_demoted = is_read_only_refusal(error) and is_standby(pooled)
                if is_demoted or was_unanswered(error):
                    pooled.close()
                    pool.distrust()
                if is_demoted:
                    raise _demoted() from error
                raise
            finally:
                pool.putconn(pooled)

    def _open_pool(self, url: str, deadline: float) -> Pool:
        if not self._opening.acquire(timeout=_left(deadline)):
            raise _too_late(self.timeout_seconds)
        try:
            if self._pool is not None and self._pool_owner != os.getpid():
                _inherited.append(self._pool)
                self._pool = None
            if self._pool is None:
                # Connect once first: a pool would report a failure late and without its cause.
                connect(url, needs_primary=True, connect_seconds=_left(deadline)).close()
                self._pool = make_pool(
                    url,
                    max_size=PRODUCER_CONNECTIONS,
                    application_name="faultline producer",
                    settings=CONTROL,
                )
                self._pool.open()
                self._pool_owner = os.getpid()
            return self._pool
        finally:
            self._opening.release()

    async def execute_async(self, statement: Statement[T]) -> T:
        deadline = time.monotonic() + self.timeout_seconds
        url = self._url()
        pool = await self._open_async_pool(url, deadline)
        with driver_errors():
            with pool_errors(url):
                pooled = await pool.getconn(_left(deadline))
            try:
                with answered_within(pooled, _left(deadline)):
                    return await run_async(pooled, statement)
            except DriverError as error:
                is_demoted = is_read_only_refusal(error) and await is_standby_async(pooled)
                if is_demoted or was_unanswered(error):
                    await pooled.close()
                    await pool.distrust()
                if is_demoted:
                    raise _demoted() from error
                raise
            finally:
                await pool.putconn(pooled)

    async def _open_async_pool(self, url: str, deadline: float) -> AsyncPool:
        loop = asyncio.get_running_loop()
        try:
            async with (
                asyncio.timeout(_left(deadline)),
                self._async_opening.setdefault(loop, asyncio.Lock()),
            ):
                if loop not in self.async_pools:
                    session = await open_session_async(
                        url, application_name="faultline", needs_primary=True
                    )
                    await session[0].close()
                    pool = make_async_pool(
                        url,
                        max_size=PRODUCER_CONNECTIONS,
                        application_name="faultline producer",
                        settings=CONTROL,
                    )
                    await pool.open()
                    self.async_pools[loop] = pool
                return self.async_pools[loop]
        except TimeoutError as error:
            raise _too_late(self.timeout_seconds) from error

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    async def aclose(self) -> None:
        if pool := self.async_pools.pop(asyncio.get_running_loop(), None):
            await pool.close()


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), _SHORTEST_SECONDS)


def _demoted() -> DatabaseUnavailable:
    return DatabaseUnavailable(
        "the server was demoted to a standby, which is read-only; nothing was done",
        hint="try again: the next call connects to the primary",
    )


def _too_late(seconds: float) -> DatabaseUnavailable:
    return DatabaseUnavailable(
        f"no connection to PostgreSQL within {seconds:g} s; nothing was sent",
        hint="check that the server is running: faultline doctor",
    )
