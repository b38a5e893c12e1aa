"""asyncpg: enqueue, commit and fenced blocks on its connections and pools."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import asyncpg

from faultline.errors import InvalidInput
from faultline.placeholders import numbered
from faultline.postgres.errors import translated_library_errors
from faultline.statements.statement import Statement
from faultline.user_connections import AsyncUserConnection, outside_transaction

T = TypeVar("T")
_ADVICE = "async with conn.transaction():"


def user_connection(given: object) -> AsyncUserConnection:
    if isinstance(given, asyncpg.Pool):
        return AsyncpgPoolUser(given)
    if isinstance(given, asyncpg.Connection) or hasattr(given, "is_in_transaction"):
        return AsyncpgUser(given)
    raise InvalidInput(
        f"conn is a {type(given).__name__} of asyncpg", hint="pass a connection or a pool"
    )


class AsyncpgUser(AsyncUserConnection):
    """A connection, or one that a pool has lent."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    @property
    def in_transaction(self) -> bool:
        return bool(self._conn.is_in_transaction())

    def require_transaction(self, what: str) -> None:
        if not self.in_transaction and not self._conn.is_closed():
            raise outside_transaction(what, _ADVICE)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        transaction = self._conn.transaction()
        await transaction.start()
        try:
            yield self._conn
        except BaseException:
            # The connection may be severed.
            with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                await transaction.rollback()
            raise
        await transaction.commit()

    async def run(self, statement: Statement[T]) -> T:
        with translated_library_errors():
            rows = await self._conn.fetch(numbered(statement.sql), *statement.params)
            return statement.read([tuple(row) for row in rows])

    def sever(self) -> None:
        terminate(self._conn)


class AsyncpgPoolUser(AsyncUserConnection):
    """A pool: each statement, or a whole block, on one of its connections."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._lent: AsyncpgUser | None = None

    @property
    def in_transaction(self) -> bool:
        return self._lent is not None and self._lent.in_transaction

    def require_transaction(self, what: str) -> None:
        raise InvalidInput(
            f"{what} on a pool, which has no transaction",
            hint="async with pool.acquire() as conn, conn.transaction(): …",
        )

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        async with self._pool.acquire() as conn:
            self._lent = AsyncpgUser(conn)
            try:
                async with self._lent.transaction() as lent:
                    yield lent
            finally:
                self._lent = None

    async def run(self, statement: Statement[T]) -> T:
        if self._lent is not None:
            return await self._lent.run(statement)
        async with self._pool.acquire() as conn:
            return await AsyncpgUser(conn).run(statement)

    def sever(self) -> None:
        if self._lent is not None:
            self._lent.sever()


def terminate(conn: Any) -> None:
    """End the session at once, also when another thread than its event loop's calls."""
    loop: asyncio.AbstractEventLoop = conn._loop
    try:
        is_own = asyncio.get_running_loop() is loop
    except RuntimeError:
        is_own = False
    with contextlib.suppress(asyncpg.InterfaceError, RuntimeError):  # released, or the loop closed
        if is_own:
            conn.terminate()
        else:
            loop.call_soon_threadsafe(conn.terminate)
