"""Connections of users, of psycopg or of a library that has an adapter.

Faultline runs its statements on them, in the transaction of the user. `user_connection` wraps what the user
gave; each adapter has a wrapper of its own, which is imported when it is needed first.
"""

from __future__ import annotations

import contextlib
import importlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Protocol, TypeVar

from faultline.errors import InvalidInput
from faultline.postgres import driver, sessions
from faultline.postgres.driver import TransactionStatus
from faultline.postgres.sessions import AsyncConnection, Connection
from faultline.statements.statement import Statement
from faultline.wording import with_article

T = TypeVar("T")

# By the package that defines the class of a connection or session, or one of its base classes.
_ADAPTERS = {
    "sqlalchemy": "faultline.adapters.sqlalchemy",
    "asyncpg": "faultline.adapters.asyncpg",
    "django": "faultline.adapters.django.connection",
}


# ── what type checkers know of other libraries, which need not be installed ──────────────────────


class SQLAlchemySession(Protocol):
    """`sqlalchemy.orm.Session`."""

    def bulk_save_objects(self, *args: Any, **kwargs: Any) -> Any: ...
    def get_bind(self, *args: Any, **kwargs: Any) -> Any: ...


class SQLAlchemyConnection(Protocol):
    """`sqlalchemy.Connection`."""

    def begin_twophase(self, *args: Any, **kwargs: Any) -> Any: ...
    def exec_driver_sql(self, *args: Any, **kwargs: Any) -> Any: ...


class SQLAlchemyAsyncSession(Protocol):
    """`sqlalchemy.ext.asyncio.AsyncSession` and `AsyncConnection`."""

    def run_sync(self, *args: Any, **kwargs: Any) -> Any: ...
    def begin_nested(self, *args: Any, **kwargs: Any) -> Any: ...


class AsyncpgConnection(Protocol):
    """`asyncpg.Connection`, or one that a pool has lent."""

    def fetchrow(self, *args: Any, **kwargs: Any) -> Any: ...
    def add_query_logger(self, *args: Any, **kwargs: Any) -> Any: ...


class AsyncpgPool(Protocol):
    """`asyncpg.Pool`."""

    def acquire(self, *args: Any, **kwargs: Any) -> Any: ...
    def expire_connections(self, *args: Any, **kwargs: Any) -> Any: ...


class DjangoDatabase(Protocol):
    """`django.db.connection`, or one of `django.db.connections`."""

    def chunked_cursor(self, *args: Any, **kwargs: Any) -> Any: ...
    def validate_thread_sharing(self, *args: Any, **kwargs: Any) -> Any: ...


SyncConnection = Connection | SQLAlchemySession | SQLAlchemyConnection | DjangoDatabase
AsynchronousConnection = AsyncConnection | SQLAlchemyAsyncSession | AsyncpgConnection
AnyConnection = SyncConnection | AsynchronousConnection


# ── connections ──────────────────────────────────────────────────────────────────────────────────


class UserConnection(ABC):
    """A connection of the user, on which Faultline runs statements."""

    is_async: bool

    @property
    @abstractmethod
    def in_transaction(self) -> bool: ...

    @abstractmethod
    def require_transaction(self, what: str) -> None:
        """Refuse a connection in autocommit mode that is not in a transaction."""

    @abstractmethod
    def sever(self) -> None:
        """End the session, so that nothing of its transaction can be committed.

        The worker calls it from another thread too.
        """


class SyncUserConnection(UserConnection):
    is_async = False

    def flush(self) -> None:
        """Send what the library keeps back; it may fail like any statement of the user's."""

    @abstractmethod
    def run(self, statement: Statement[T]) -> T:
        """Run a statement; PostgreSQL's refusals are raised as errors of Faultline."""

    @abstractmethod
    def transaction(self) -> contextlib.AbstractContextManager[Any]:
        """A transaction, or a savepoint in one; it yields what the user writes with."""


class AsyncUserConnection(UserConnection):
    is_async = True

    async def flush(self) -> None:
        """Send what the library keeps back."""

    @abstractmethod
    async def run(self, statement: Statement[T]) -> T: ...

    @abstractmethod
    def transaction(self) -> contextlib.AbstractAsyncContextManager[Any]: ...


class PsycopgConnection(SyncUserConnection):
    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    @property
    def in_transaction(self) -> bool:
        return self._conn.info.transaction_status is not TransactionStatus.IDLE

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        with self._conn.transaction():
            yield self._conn

    def run(self, statement: Statement[T]) -> T:
        return sessions.run(self._conn, statement)

    def require_transaction(self, what: str) -> None:
        _require_transaction(self._conn, what)

    def sever(self) -> None:
        sessions.sever(self._conn)


class PsycopgAsyncConnection(AsyncUserConnection):
    def __init__(self, conn: AsyncConnection) -> None:
        self._conn = conn

    @property
    def in_transaction(self) -> bool:
        return self._conn.info.transaction_status is not TransactionStatus.IDLE

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        async with self._conn.transaction():
            yield self._conn

    async def run(self, statement: Statement[T]) -> T:
        return await sessions.run_async(self._conn, statement)

    def require_transaction(self, what: str) -> None:
        _require_transaction(self._conn, what)

    def sever(self) -> None:
        sessions.sever(self._conn)


def _require_transaction(conn: Connection | AsyncConnection, what: str) -> None:
    status = conn.info.transaction_status
    in_transaction = status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)
    if conn.autocommit and not in_transaction and not conn._num_transactions and not conn.closed:
        raise outside_transaction(what, "with conn.transaction():")


def outside_transaction(what: str, advice: str) -> InvalidInput:
    return InvalidInput(
        f"{what} on a connection in autocommit mode, and not in a transaction",
        hint=f"call it inside of `{advice}`, together with your writes",
    )


def user_connection(conn: object) -> SyncUserConnection | AsyncUserConnection:
    """Wrap a connection that a user gave; InvalidInput if it is of no known library."""
    if isinstance(conn, driver.Connection):
        return PsycopgConnection(conn)
    if isinstance(conn, driver.AsyncConnection):
        return PsycopgAsyncConnection(conn)
    for name in {base.__module__.partition(".")[0]: None for base in type(conn).__mro__}:
        if name in _ADAPTERS:
            adapter = importlib.import_module(_ADAPTERS[name])
            wrapped: SyncUserConnection | AsyncUserConnection = adapter.user_connection(conn)
            return wrapped
    raise InvalidInput(
        f"conn is {with_article(type(conn).__name__)}, which is no connection that Faultline knows",
        hint=_advice(conn),
    )


def _advice(conn: object) -> str:
    if isinstance(conn, str | bytes):
        return "connect first: with psycopg.connect(url) as conn; Faultline(url) is for its own sessions"
    if hasattr(conn, "fetchone") and hasattr(conn, "connection"):
        return "pass the connection of this cursor: conn=cursor.connection"
    if hasattr(conn, "getconn"):
        return "pass a connection of this pool: with pool.connection() as conn"
    return (
        "pass a connection of psycopg, asyncpg or Django, or a session or connection of SQLAlchemy"
    )


def sync_connection(conn: object) -> SyncUserConnection:
    wrapped = user_connection(conn)
    if isinstance(wrapped, AsyncUserConnection):
        raise InvalidInput(f"conn is {with_article(type(conn).__name__)}: use the _async method")
    return wrapped


def async_connection(conn: object) -> AsyncUserConnection:
    wrapped = user_connection(conn)
    if isinstance(wrapped, SyncUserConnection):
        raise InvalidInput(f"conn is {with_article(type(conn).__name__)}: it must be async here")
    return wrapped


def run_guarded(
    conn: SyncUserConnection | AsyncUserConnection,
    statement: Statement[None],
    guard: contextlib.AbstractContextManager[None],
    before: Callable[[], object] = lambda: None,
) -> Coroutine[Any, Any, None] | None:
    """Flush, call `before`, and run a statement; awaitable if the connection is async."""
    if isinstance(conn, AsyncUserConnection):
        return _run_guarded_async(conn, statement, guard, before)
    with guard:
        conn.flush()
        before()
        return conn.run(statement)


async def _run_guarded_async(
    conn: AsyncUserConnection,
    statement: Statement[None],
    guard: contextlib.AbstractContextManager[None],
    before: Callable[[], object],
) -> None:
    with guard:
        await conn.flush()
        before()
        await conn.run(statement)
