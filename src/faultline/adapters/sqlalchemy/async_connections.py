"""The same for AsyncSession and AsyncConnection, which need the package greenlet."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

from faultline.adapters.sqlalchemy.connections import (
    OpenedSession,
    for_dialect,
    refuse_two_phase,
    rows_of,
)
from faultline.errors import FaultlineError, InvalidInput
from faultline.postgres.errors import translated_library_errors
from faultline.statements.statement import Statement
from faultline.user_connections import AsyncUserConnection

T = TypeVar("T")


def async_user_connection(given: object) -> AlchemyAsyncConnection | None:
    if isinstance(given, async_scoped_session):
        given = given()
    if isinstance(given, AsyncSession | AsyncConnection):
        return AlchemyAsyncConnection(given)
    return None


class AlchemyAsyncConnection(AsyncUserConnection):
    """An AsyncSession or an AsyncConnection."""

    def __init__(self, given: AsyncSession | AsyncConnection) -> None:
        refuse_two_phase(given)
        self._given = given
        self._session = OpenedSession()
        self._required: str | None = None

    @property
    def in_transaction(self) -> bool:
        return self._given.in_transaction()

    def require_transaction(self, what: str) -> None:
        self._required = what

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSession | AsyncConnection]:
        given = self._given
        began = given.begin_nested() if given.in_transaction() else given.begin()
        await began.start()
        try:
            yield given
            await began.commit()
        except BaseException:
            with contextlib.suppress(sa.exc.SQLAlchemyError):
                await began.rollback()
            raise

    async def flush(self) -> None:
        if isinstance(self._given, AsyncSession):
            await self._given.flush()

    async def run(self, statement: Statement[T]) -> T:
        await self.flush()
        with translated_library_errors():
            given = self._given
            conn = await given.connection() if isinstance(given, AsyncSession) else given
            sync_conn = conn.sync_connection
            if sync_conn is None:
                raise InvalidInput("conn is not connected", hint="async with engine.connect() as …")
            self._session.opened(sync_conn, self._required)
            try:
                result = await conn.exec_driver_sql(*for_dialect(sync_conn, statement))
            except FaultlineError:  # a refusal: SQLAlchemy must not roll back on a severed session
                await conn.invalidate()
                raise
            return statement.read(rows_of(result))

    def sever(self) -> None:
        if not self._session.is_open and self.in_transaction:
            given = self._given
            with contextlib.suppress(sa.exc.SQLAlchemyError):  # its transaction has begun: no wait
                if isinstance(given, AsyncSession):
                    self._session.opened(given.sync_session.connection(), None)
                elif given.sync_connection is not None:
                    self._session.opened(given.sync_connection, None)
        self._session.sever()
