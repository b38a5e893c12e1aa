"""Pools of connections that go on trying while somebody waits, and serve whoever has waited longest."""

from __future__ import annotations

import time
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from faultline.line import AsyncLine, Line

# A pool tries to connect ever more seldom while its server is away, a minute apart in the end, and whoever
# waits for it waits as long. So it is told to give up at once, and is asked again: each asking is a try.
# Who asks again goes to the end of the pool's own queue, so no more ask than it has connections for: the
# others stand in line before it.
_TURN_SECONDS = 0.5


class AskingPool(ConnectionPool[psycopg.Connection[Any]]):
    def __init__(self, *, max_size: int, **options: Any) -> None:
        super().__init__(max_size=max_size, **options)
        self._line = Line(max_size)

    def getconn(self, timeout: float | None = None) -> psycopg.Connection[Any]:
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        if not self._line.enter(deadline - time.monotonic()):
            raise PoolTimeout("all connections are in use")
        try:
            while True:
                left = max(0.0, deadline - time.monotonic())
                try:
                    return super().getconn(min(left, _TURN_SECONDS))
                except PoolTimeout:
                    if left <= _TURN_SECONDS:
                        raise
        except BaseException:
            self._line.leave()
            raise

    def distrust(self) -> None:
        """Close what was opened until now, in use or not: its server froze or was demoted."""
        self.drain()

    def putconn(self, conn: psycopg.Connection[Any]) -> None:
        try:
            super().putconn(conn)
        finally:
            self._line.leave()


class AskingAsyncPool(AsyncConnectionPool[psycopg.AsyncConnection[Any]]):
    def __init__(self, *, max_size: int, **options: Any) -> None:
        super().__init__(max_size=max_size, **options)
        self._line = AsyncLine(max_size)

    async def getconn(self, timeout: float | None = None) -> psycopg.AsyncConnection[Any]:
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        if not await self._line.enter(deadline - time.monotonic()):
            raise PoolTimeout("all connections are in use")
        try:
            while True:
                left = max(0.0, deadline - time.monotonic())
                try:
                    return await super().getconn(min(left, _TURN_SECONDS))
                except PoolTimeout:
                    if left <= _TURN_SECONDS:
                        raise
        except BaseException:
            self._line.leave()
            raise

    async def distrust(self) -> None:
        """Close what was opened until now, in use or not: its server froze or was demoted."""
        await self.drain()

    async def putconn(self, conn: psycopg.AsyncConnection[Any]) -> None:
        try:
            await super().putconn(conn)
        finally:
            self._line.leave()
