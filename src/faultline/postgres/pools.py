"""Connection pools that retry while a caller waits, and serve in FIFO order.

No aborted caller loses a connection. In a thread, interrupts are held back while a connection is taken or
returned. On an event loop, the steps that a cancellation could interrupt run in a task of their own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Coroutine
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from faultline import handler_interrupts

T = TypeVar("T")

# psycopg_pool retries less and less often while its server is away, up to a minute apart, and a caller
# waits as long. So this pool lets each try fail at once and asks again. A caller that asks again goes to
# the end of the pool's own queue, so no more callers ask than the pool has connections: the others wait in
# a FIFO semaphore in front of it.
_TURN_SECONDS = 0.5


class RetryingPool(ConnectionPool[psycopg.Connection[Any]]):
    def __init__(self, *, max_size: int, **options: Any) -> None:
        super().__init__(max_size=max_size, **options)
        self._line = FifoSemaphore(max_size)

    def getconn(self, timeout: float | None = None) -> psycopg.Connection[Any]:
        """Take a connection. Callers hold interrupts back until their `finally: putconn`."""
        conn = None
        try:
            with handler_interrupts.held():
                conn = self._getconn(timeout)
            return conn  # noqa: RET504 - assigned inside, so that it can be returned to the pool
        except BaseException:
            if conn is not None:  # an interrupt was held back
                self.putconn(conn)
            raise

    def _getconn(self, timeout: float | None) -> psycopg.Connection[Any]:
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        if not self._line.enter(deadline - time.monotonic()):
            raise PoolTimeout("all connections are in use")
        try:
            while True:
                left = max(0.0, deadline - time.monotonic())
                try:
                    return super().getconn(min(left, _TURN_SECONDS))
                except PoolTimeout:
                    handler_interrupts.deliver()
                    if left <= _TURN_SECONDS:
                        raise
        except BaseException:
            self._line.leave()
            raise

    def distrust(self) -> None:
        """Close every connection opened so far: its server froze or was demoted."""
        self.drain()

    def putconn(self, conn: psycopg.Connection[Any]) -> None:
        with handler_interrupts.held():
            try:
                super().putconn(conn)
            finally:
                self._line.leave()


class RetryingAsyncPool(AsyncConnectionPool[psycopg.AsyncConnection[Any]]):
    def __init__(self, *, max_size: int, **options: Any) -> None:
        super().__init__(max_size=max_size, **options)
        self._line = AsyncFifoSemaphore(max_size)
        self._tasks_apart: set[asyncio.Task[Any]] = set()

    async def getconn(self, timeout: float | None = None) -> psycopg.AsyncConnection[Any]:
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        if not await self._line.enter(deadline - time.monotonic()):
            raise PoolTimeout("all connections are in use")
        try:
            while True:
                left = max(0.0, deadline - time.monotonic())
                try:
                    return await self._ask(min(left, _TURN_SECONDS))
                except PoolTimeout:
                    if left <= _TURN_SECONDS:
                        raise
        except BaseException:
            self._line.leave()
            raise

    async def _ask(self, seconds: float) -> psycopg.AsyncConnection[Any]:
        if self._pool and not self._lock.locked():  # does not await, so it cannot be cancelled
            return await super().getconn(seconds)
        asking = self._apart(super().getconn(seconds))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            asking.add_done_callback(self._take_back)
            raise

    async def distrust(self) -> None:
        """Close every connection opened so far: its server froze or was demoted."""
        await self.drain()

    async def putconn(self, conn: psycopg.AsyncConnection[Any]) -> None:
        try:
            is_idle = conn.info.transaction_status is TransactionStatus.IDLE
            # does not await, so it cannot be cancelled
            if is_idle and not self._waiting and not self._lock.locked():
                await super().putconn(conn)
            else:
                await asyncio.shield(self._apart(super().putconn(conn)))
        finally:
            self._line.leave()

    def _apart(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine in a task that the caller's cancellation does not reach."""
        task = asyncio.create_task(work)
        self._tasks_apart.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks_apart.discard(task)
        if not task.cancelled():
            task.exception()  # retrieve the exception, so that asyncio does not log it

    def _take_back(self, asking: asyncio.Task[psycopg.AsyncConnection[Any]]) -> None:
        """Return a connection whose caller was cancelled meanwhile."""
        if not asking.cancelled() and asking.exception() is None:
            self._apart(super().putconn(asking.result()))


# How soon a waiting thread notices an interrupt.
_LOOK_SECONDS = 0.5


class FifoSemaphore:
    """A semaphore for threads; a caller keeps its position for as long as it waits."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, timeout_seconds: float) -> bool:
        """Wait for a place; False after the timeout. A caller that got one must `leave`.

        The caller holds interrupts back (`handler_interrupts.held`): one between two lines here would lose a
        place. An interrupt that arrives while the thread waits is delivered here.
        """
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return True
            turn = threading.Event()
            self._waiting.append(turn)
        deadline = time.monotonic() + timeout_seconds
        try:
            while (left := deadline - time.monotonic()) > 0:
                if turn.wait(min(left, _LOOK_SECONDS)):
                    return True
                handler_interrupts.deliver()
        except BaseException:
            if not self._withdraw(turn):
                self.leave()  # it got a place at the last moment and does not need it
            raise
        return not self._withdraw(turn)

    def leave(self) -> None:
        """Free the place, for the caller that has waited longest."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._free += 1

    def _withdraw(self, turn: threading.Event) -> bool:
        with self._lock:
            if turn.is_set():
                return False
            self._waiting.remove(turn)
            return True


class AsyncFifoSemaphore:
    """The same for an event loop."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    async def enter(self, timeout_seconds: float) -> bool:
        if self._free > 0:
            self._free -= 1
            return True
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await asyncio.wait({turn}, timeout=timeout_seconds)
        except BaseException:
            if not self._withdraw(turn):
                self.leave()
            raise
        return not self._withdraw(turn)

    def leave(self) -> None:
        if self._waiting:
            self._waiting.popleft().set_result(None)
        else:
            self._free += 1

    def _withdraw(self, turn: asyncio.Future[None]) -> bool:
        if turn.done():
            return False
        self._waiting.remove(turn)
        return True
