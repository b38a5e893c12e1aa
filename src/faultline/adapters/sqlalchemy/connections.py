"""Runs Faultline's statements in the transaction of a session or connection.

They go through SQLAlchemy, so that it knows what its connection is doing. The dialects are
psycopg, psycopg2 and asyncpg.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.orm import Session, scoped_session

from faultline.errors import InvalidInput
from faultline.placeholders import numbered
from faultline.postgres.errors import translate_wrapped, translated_library_errors
from faultline.postgres.sessions import sever
from faultline.statements.statement import Row, Statement
from faultline.user_connections import (
    AsyncUserConnection,
    SyncUserConnection,
    outside_transaction,
)

T = TypeVar("T")
_ADVICE = "with session.begin():"


def user_connection(given: object) -> SyncUserConnection | AsyncUserConnection:
    if isinstance(given, scoped_session):
        given = given()
    if isinstance(given, Session | sa.Connection):
        return AlchemyConnection(given)
    if "sqlalchemy.ext.asyncio" in sys.modules:  # without greenlet it cannot be imported
        from faultline.adapters.sqlalchemy.async_connections import async_user_connection

        if (wrapped := async_user_connection(given)) is not None:
            return wrapped
    raise InvalidInput(
        f"conn is a {type(given).__name__} of SQLAlchemy, which has no transaction",
        hint="pass a Session, an AsyncSession or a connection: with Session(engine) as session: …",
    )


class AlchemyConnection(SyncUserConnection):
    """A Session or a Connection. A session is flushed before each statement."""

    def __init__(self, given: Session | sa.Connection) -> None:
        refuse_two_phase(given)
        self._given = given
        self._session = OpenedSession()
        self._required: str | None = None

    @property
    def in_transaction(self) -> bool:
        return self._given.in_transaction()

    def require_transaction(self, what: str) -> None:
        self._required = what  # it is known when there is a connection

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Session | sa.Connection]:
        given = self._given
        began = given.begin_nested() if given.in_transaction() else given.begin()
        try:
            yield given
            began.commit()
        except BaseException:
            with contextlib.suppress(sa.exc.SQLAlchemyError):  # the connection may be severed
                began.rollback()
            raise

    def flush(self) -> None:
        if isinstance(self._given, Session):
            self._given.flush()

    def run(self, statement: Statement[T]) -> T:
        self.flush()
        with translated_library_errors():
            conn = self._connection()
            self._session.opened(conn, self._required)
            result = conn.exec_driver_sql(*for_dialect(conn, statement))
            return statement.read(rows_of(result))

    def sever(self) -> None:
        if not self._session.is_open and self.in_transaction:
            with contextlib.suppress(sa.exc.SQLAlchemyError):
                self._session.opened(self._connection(), None)
        self._session.sever()

    def _connection(self) -> sa.Connection:
        given = self._given
        return given if isinstance(given, sa.Connection) else given.connection()


class OpenedSession:
    """The connection that a statement has used, which can be severed."""

    def __init__(self) -> None:
        self._conn: sa.Connection | None = None
        self._driver: Any = None
        self._thread = 0

    @property
    def is_open(self) -> bool:
        return self._conn is not None

    def opened(self, conn: sa.Connection, required: str | None) -> None:
        """Remember the connection; refuse one in autocommit mode if `required` needs none."""
        proxied = conn.connection
        if required is not None and getattr(proxied.dbapi_connection, "autocommit", False):
            raise outside_transaction(required, _ADVICE)
        if not event.contains(conn.engine, "handle_error", _raise_refusal):
            event.listen(conn.engine, "handle_error", _raise_refusal, retval=True)
        self._conn, self._driver = conn, proxied.driver_connection
        self._thread = threading.get_ident()

    def sever(self) -> None:
        """End it. In its own thread SQLAlchemy learns of it, and does not roll back on it."""
        if self._conn is None or self._conn.invalidated:
            return
        is_own_thread = threading.get_ident() == self._thread
        if is_own_thread and not self._conn.dialect.is_async:
            with contextlib.suppress(sa.exc.SQLAlchemyError):
                self._conn.invalidate()
        elif hasattr(self._driver, "terminate"):  # asyncpg's, which its own event loop must close
            from faultline.adapters.asyncpg import terminate

            terminate(self._driver)
        else:
            with contextlib.suppress(Exception):  # psycopg2's own error if it is closed
                sever(self._driver)


def _raise_refusal(context: Any) -> BaseException | None:
    """Raise a refusal of Faultline's as its own error, from any statement or COMMIT."""
    return translate_wrapped(context.original_exception)


def for_dialect(conn: sa.Connection, statement: Statement[Any]) -> tuple[str, tuple[Any, ...]]:
    paramstyle = conn.dialect.paramstyle
    if paramstyle in ("format", "pyformat"):
        return statement.sql, statement.params
    if paramstyle == "numeric_dollar":
        return numbered(statement.sql), statement.params
    raise InvalidInput(
        f"the dialect {conn.dialect.name}+{conn.dialect.driver} is not supported",
        hint="use postgresql+psycopg, postgresql+psycopg2 or postgresql+asyncpg",
    )


def rows_of(result: sa.CursorResult[Any]) -> list[Row]:
    return [tuple(row) for row in result] if result.returns_rows else []


def refuse_two_phase(given: Any) -> None:
    """Refuse a session of two-phase transactions, or a connection that has begun one."""
    session, conn = getattr(given, "sync_session", given), getattr(given, "sync_connection", given)
    has_begun = isinstance(conn, sa.Connection) and isinstance(
        conn.get_transaction(), sa.TwoPhaseTransaction
    )
    if getattr(session, "twophase", False) or has_begun:
        raise InvalidInput(
            "a two-phase transaction cannot be fenced: it may commit long after the lease",
            hint="use a session without twophase=True for jobs",
        )
