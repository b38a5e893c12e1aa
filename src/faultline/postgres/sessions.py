"""Opens sessions and pools, and runs statements on them."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Sequence
from typing import Any, LiteralString, NamedTuple, TypeVar, cast

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.json import set_json_loads
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from faultline import errors
from faultline.payload import decode_stored
from faultline.postgres.answer_limit import (
    ANSWER_SECONDS,
    AsyncBoundedConnection,
    BoundedConnection,
    answered_within,
)
from faultline.postgres.connection_failures import unavailable
from faultline.postgres.errors import translated_errors
from faultline.postgres.forking import remember_server
from faultline.postgres.pools import RetryingAsyncPool, RetryingPool
from faultline.postgres.url import listed, parts_of, why_unreadable
from faultline.statements.session_settings import (
    CONTROL,
    HANDLER,
    PROBE,
    TOOL,
    TRIES,
    Session,
    Settings,
    Values,
    describe,
    too_short,
)
from faultline.statements.statement import Reads, Statement

T = TypeVar("T")
Connection = psycopg.Connection[Any]
AsyncConnection = psycopg.AsyncConnection[Any]
Pool = RetryingPool
AsyncPool = RetryingAsyncPool

# The kernel must notice a lost peer: otherwise a query on a socket without a reply waits for ever, whatever
# statement_timeout says.
NETWORK_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}

# Of several servers the primary. Not "read-write", which also refuses a primary whose account has
# default_transaction_read_only = on: Faultline's sessions set that themselves.
WRITABLE = "primary" if psycopg.pq.version() >= 140000 else "read-write"

IN_RECOVERY: Statement[bool] = Statement(
    "SELECT pg_is_in_recovery()", (), lambda rows: bool(rows[0][0])
)
_ASK_SECONDS = 2.0


def run(conn: Connection, statement: Statement[T]) -> T:
    with translated_errors(), psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
        return statement.read(cursor.execute(statement.sql, statement.params).fetchall())


async def run_async(conn: AsyncConnection, statement: Statement[T]) -> T:
    with translated_errors():
        async with psycopg.AsyncCursor(conn, row_factory=tuple_row) as cursor:
            await cursor.execute(statement.sql, statement.params)
            return statement.read(await cursor.fetchall())


def run_reads(conn: Connection, reads: Reads[T]) -> T:
    """Run the statements that a generator yields, and return what it returns."""
    try:
        statement = next(reads)
        while True:
            statement = reads.send(run(conn, statement))
    except StopIteration as end:
        return cast("T", end.value)


def run_together(conn: Connection, *statements: Statement[Any]) -> None:
    """Run several statements in one round trip without reading their rows.

    The first error ends it.
    """
    with translated_errors(), psycopg.ClientCursor(conn) as cursor:
        cursor.execute(*together(statements))


async def run_together_async(conn: AsyncConnection, *statements: Statement[Any]) -> None:
    with translated_errors():
        async with psycopg.AsyncClientCursor(conn) as cursor:
            await cursor.execute(*together(statements))


def together(statements: Sequence[Statement[Any]]) -> tuple[LiteralString, tuple[Any, ...]]:
    sql: LiteralString = "; ".join([statement.sql for statement in statements])
    return sql, tuple(param for statement in statements for param in statement.params)


# ── sessions ─────────────────────────────────────────────────────────────────────────────────────


def connect_options(
    url: str, *, application_name: str, needs_primary: bool = True
) -> dict[str, Any]:
    given = parts_of(url)
    if given is None:
        reason, hint = why_unreadable(url)
        raise errors.InvalidInput(f"not a database URL: {reason}", hint=hint)
    ours = {"autocommit": True, "client_encoding": "UTF8"}
    # A silent host must not use up the time of a lease before the next one is asked.
    several = len(listed(given, "host") or listed(given, "hostaddr")) > 1
    target = {"connect_timeout": "3"} if several else {}
    if several or needs_primary:  # one name may lead to several servers too
        target["target_session_attrs"] = WRITABLE
    return {**NETWORK_DEFAULTS, "application_name": application_name, **target, **given, **ours}


def connect(
    url: str,
    *,
    application_name: str = "faultline",
    needs_primary: bool = False,
    connect_seconds: float | None = None,
) -> Connection:
    """A session for tools, without a time limit and with the account's search path."""
    return open_session(
        url,
        application_name=application_name,
        settings=TOOL,
        needs_primary=needs_primary,
        connect_seconds=connect_seconds,
    )[0]


def open_session(
    url: str,
    *,
    application_name: str,
    settings: Settings = CONTROL,
    answer_seconds: float | None = None,
    needs_primary: bool = False,
    connect_seconds: float | None = None,
) -> tuple[Connection, Session]:
    """Open a session; `answer_seconds` bounds each statement (None: no limit).

    Without `needs_primary` a URL with one host may lead to a standby. `connect_seconds` is for all hosts
    together, if it is shorter than the URL's own limit.
    """
    options = connect_options(url, application_name=application_name, needs_primary=needs_primary)
    if connect_seconds is not None:
        hosts = len(listed(options, "host") or listed(options, "hostaddr")) or 1
        share = max(1, int(connect_seconds / hosts))
        options["connect_timeout"] = str(min(share, int(options["connect_timeout"]) or share))
    try:
        conn = BoundedConnection.connect(**options)
        try:
            with answered_within(conn, answer_seconds or ANSWER_SECONDS):
                session = configure(conn, settings)
        except BaseException:
            conn.close()
            raise
    except psycopg.OperationalError as error:
        raise unavailable(url, error) from error
    conn.answer_seconds = answer_seconds
    return conn, session


async def open_session_async(
    url: str,
    *,
    application_name: str,
    settings: Settings = CONTROL,
    answer_seconds: float | None = None,
    needs_primary: bool = False,
) -> tuple[AsyncConnection, Session]:
    options = connect_options(url, application_name=application_name, needs_primary=needs_primary)
    try:
        conn = await AsyncBoundedConnection.connect(**options)
        try:
            with answered_within(conn, answer_seconds or ANSWER_SECONDS):
                session = await configure_async(conn, settings)
        except BaseException:
            await conn.close()
            raise
    except psycopg.OperationalError as error:
        raise unavailable(url, error) from error
    conn.answer_seconds = answer_seconds
    return conn, session


def is_standby(conn: Connection) -> bool:
    """Whether this session's server was demoted; False also if it does not answer."""
    try:
        with answered_within(conn, _ASK_SECONDS):
            return run(conn, IN_RECOVERY)
    except psycopg.Error:
        return False


async def is_standby_async(conn: AsyncConnection) -> bool:
    try:
        with answered_within(conn, _ASK_SECONDS):
            return await run_async(conn, IN_RECOVERY)
    except psycopg.Error:
        return False


def configure(conn: Connection, settings: Settings) -> Session:
    """Set Faultline's settings on a new connection; behind a pooler, check them."""
    remember_server(conn)
    set_json_loads(decode_stored, conn)
    for tries_left in reversed(range(TRIES)):
        try:
            with psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
                session = _describe(conn, cursor.execute(PROBE).fetchone(), settings)
            if session.settings:
                conn.execute(session.settings)
            else:
                conn.prepare_threshold = None
            return session
        except psycopg.errors.QueryCanceled as error:
            if not tries_left:
                raise too_short(error.diag.message_primary) from error
    raise AssertionError("the last try returns or raises")


async def configure_async(conn: AsyncConnection, settings: Settings) -> Session:
    remember_server(conn)
    set_json_loads(decode_stored, conn)
    for tries_left in reversed(range(TRIES)):
        try:
            async with psycopg.AsyncCursor(conn, row_factory=tuple_row) as cursor:
                await cursor.execute(PROBE)
                session = _describe(conn, await cursor.fetchone(), settings)
            if session.settings:
                await conn.execute(session.settings)
            else:
                conn.prepare_threshold = None
            return session
        except psycopg.errors.QueryCanceled as error:
            if not tries_left:
                raise too_short(error.diag.message_primary) from error
    raise AssertionError("the last try returns or raises")


def _describe(
    conn: Connection | AsyncConnection, probe: tuple[Any, ...] | None, settings: Settings
) -> Session:
    assert probe is not None  # noqa: S101 - a SELECT without FROM has one row
    info = conn.info
    return describe(
        probe,
        user=info.user,
        backend_pid=info.backend_pid,
        server_version=info.server_version,
        settings=settings,
    )


# ── pooled connections ───────────────────────────────────────────────────────────────────────────


class PooledConnection(BoundedConnection):
    """A connection of a pool, and what is known of its session."""

    session: Session
    was_lent: bool = False  # a handler used it: its session may have changed


class AsyncPooledConnection(AsyncBoundedConnection):
    """The same for asyncio."""

    session: Session
    was_lent: bool = False


def settings_to_restore(conn: Connection | AsyncConnection) -> Values:
    """The settings to restore on a session that a handler used before.

    Empty behind a pooler: there a session belongs to many clients.
    """
    if isinstance(conn, PooledConnection | AsyncPooledConnection):
        was_lent, conn.was_lent = conn.was_lent, True
        return conn.session.values if was_lent else ()
    return ()


def has_limits(conn: Connection | AsyncConnection) -> bool:
    """Whether the account limits statements or lock waits on this pooled connection."""
    return isinstance(conn, PooledConnection | AsyncPooledConnection) and conn.session.has_limits


# ── pools ────────────────────────────────────────────────────────────────────────────────────────

POOL_SECONDS = 15.0


def make_pool(
    url: str, *, max_size: int, application_name: str, settings: Settings = HANDLER
) -> Pool:
    """Make a pool. Its first connection is opened when the first caller needs one."""

    def prepare(conn: Connection) -> None:
        with answered_within(conn, ANSWER_SECONDS):
            session = configure(conn, settings)
        _require_primary(session)
        cast("PooledConnection", conn).session = session

    def check(conn: Connection) -> None:
        if has_pending_input(conn):
            with answered_within(conn, ANSWER_SECONDS):
                ConnectionPool.check_connection(conn)

    options = connect_options(url, application_name=application_name)
    return RetryingPool(
        connection_class=PooledConnection,
        kwargs=options,
        min_size=0,
        max_size=max_size,
        open=False,
        configure=prepare,
        check=check,
        reconnect_timeout=0,
        timeout=POOL_SECONDS,
    )


def make_async_pool(
    url: str, *, max_size: int, application_name: str, settings: Settings = HANDLER
) -> AsyncPool:
    async def prepare(conn: AsyncConnection) -> None:
        with answered_within(conn, ANSWER_SECONDS):
            session = await configure_async(conn, settings)
        _require_primary(session)
        cast("AsyncPooledConnection", conn).session = session

    async def check(conn: AsyncConnection) -> None:
        if has_pending_input(conn):
            with answered_within(conn, ANSWER_SECONDS):
                await AsyncConnectionPool.check_connection(conn)

    options = connect_options(url, application_name=application_name)
    return RetryingAsyncPool(
        connection_class=AsyncPooledConnection,
        kwargs=options,
        min_size=0,
        max_size=max_size,
        open=False,
        configure=prepare,
        check=check,
        reconnect_timeout=0,
        timeout=POOL_SECONDS,
    )


def _require_primary(session: Session) -> None:
    """Require the primary even if the URL accepts any server: pools are for writing."""
    if session.is_standby:
        raise errors.DatabaseUnavailable("the server is a standby, and only reads")


def has_pending_input(conn: Connection | AsyncConnection) -> bool:
    """Whether the server has sent something on an idle connection.

    Mostly that is the end of the session. A connection that died while idle must not cost an attempt, and
    asking the kernel costs no round trip.
    """
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([conn.fileno()], [], [], 0)[0])
    looker = select.poll()
    looker.register(conn.fileno(), select.POLLIN)
    return bool(looker.poll(0))


class ServerAddress(NamedTuple):
    """The host that a session is connected to, one of those that the URL names."""

    host: str
    address: str
    port: int


def server_address_of(conn: Connection | AsyncConnection) -> ServerAddress | None:
    """The host of a connection; None if it is closed or failed."""
    try:
        return ServerAddress(conn.info.host, conn.info.hostaddr, conn.info.port)
    except psycopg.Error:
        return None


def sever(conn: Connection | AsyncConnection) -> None:
    """Close a session from another thread, so that a caller that waits in it returns.

    The socket is shut down, not closed, because the caller still uses it. The caller is not cancelled
    either: the driver would then ask the server to cancel, and wait for a server that may be out of
    reach.
    """
    with (
        contextlib.suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(conn.fileno())) as duplicate,
    ):
        duplicate.shutdown(socket.SHUT_RDWR)
