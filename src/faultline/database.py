"""The only place that speaks to the driver: sessions, pools, and errors in our own words."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Iterator, Sequence
from typing import Any, LiteralString, TypeVar, cast

import orjson
import psycopg
from psycopg import conninfo
from psycopg.rows import tuple_row
from psycopg.types.json import set_json_loads
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from faultline import errors
from faultline.payload import decode_stored
from faultline.pool import AskingAsyncPool, AskingPool
from faultline.protocol import Statement
from faultline.session_settings import (
    CONTROL,
    HANDLER,
    PROBE,
    TOOL,
    TRIES,
    Settings,
    describe,
    too_short,
)
from faultline.session_settings import Session as Session

T = TypeVar("T")
Connection = psycopg.Connection[Any]
AsyncConnection = psycopg.AsyncConnection[Any]
Pool = ConnectionPool[Connection]
AsyncPool = AsyncConnectionPool[AsyncConnection]

# A peer that is gone must be noticed by the kernel: a query on a black-holed socket waits for ever
# otherwise, whatever statement_timeout says.
NETWORK_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}


def run(conn: Connection, statement: Statement[T]) -> T:
    with translated_errors(), psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
        return statement.read(cursor.execute(statement.sql, statement.params).fetchall())


async def run_async(conn: AsyncConnection, statement: Statement[T]) -> T:
    with translated_errors():
        async with psycopg.AsyncCursor(conn, row_factory=tuple_row) as cursor:
            await cursor.execute(statement.sql, statement.params)
            return statement.read(await cursor.fetchall())


def run_together(conn: Connection, *statements: Statement[Any]) -> None:
    """Several statements in one round trip, their answers unread; the first to fail ends it."""
    with translated_errors(), psycopg.ClientCursor(conn) as cursor:
        cursor.execute(*_together(statements))


async def run_together_async(conn: AsyncConnection, *statements: Statement[Any]) -> None:
    with translated_errors():
        async with psycopg.AsyncClientCursor(conn) as cursor:
            await cursor.execute(*_together(statements))


def _together(statements: Sequence[Statement[Any]]) -> tuple[LiteralString, tuple[Any, ...]]:
    sql: LiteralString = "; ".join([statement.sql for statement in statements])
    return sql, tuple(param for statement in statements for param in statement.params)


# ── errors ───────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        translated = translate(error)
        if translated is None:
            raise
        raise translated from error


def translate(error: psycopg.Error) -> errors.FaultlineError | None:
    """The error in Faultline's words; None for what only the driver can say."""
    diag = error.diag
    message, hint = diag.message_primary or str(error), diag.message_hint
    match error.sqlstate:
        case "FL001":
            detail = orjson.loads(diag.message_detail or "{}")
            return errors.StaleLease(
                detail.get("reason", "unknown"),
                job_id=detail.get("job_id"),
                stale_token=detail.get("stale_token"),
                current_token=detail.get("current_token"),
            )
        case "FL002":
            return errors.IllegalTransition(message, hint=hint)
        case "FL003":
            return errors.TokenViolation(message, hint=hint)
        case "FL004":
            detail = orjson.loads(diag.message_detail or "{}")
            return errors.IdempotencyConflict(message, job_id=detail.get("job_id"), hint=hint)
        case "FL005":
            return errors.InvalidInput(message, hint=hint)
        case "FL006":
            return errors.UnknownJob(message, hint=hint)
        case "FL007":
            return errors.FenceNotHeld(message, hint=hint)
        case "FL008":
            return errors.ServerChanged(message, hint=hint)
        case "23514" if diag.schema_name == "faultline":
            rule = (diag.constraint_name or "").replace("_", " ")
            return errors.InvalidInput(f"refused by the database: {rule}")
        case "3F000" | "42883" | "42P01" if "faultline" in message:
            return errors.SchemaMismatch(
                "this database has no Faultline schema, or an older one",
                hint="run: faultline migrate",
            )
    return None


def is_connection_lost(error: BaseException) -> bool:
    """Whether the session is gone, so that what it was doing may or may not have happened."""
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    return error.sqlstate is None or error.sqlstate[:2] in ("08", "57")


def is_serialization_conflict(error: BaseException) -> bool:
    """Also for an error that a handler's child process reported by its sqlstate."""
    return getattr(error, "sqlstate", None) in ("40001", "40P01")


def redact(url: str) -> str:
    """Where a URL or DSN leads, fit for logs and error messages: built from its parts, so that there
    is no place for a password to slip through."""
    parts = _parts(url)
    if parts is None:
        return "(a connection string that cannot be read)"
    user = f"{parts['user']}@" if parts.get("user") else ""
    hosts = _listed(parts, "host") or _listed(parts, "hostaddr") or ["localhost"]
    ports = _listed(parts, "port")
    if len(ports) == 1:  # one for all of them
        ports *= len(hosts)
    servers = [f"{host}:{port}" for host, port in zip(hosts, ports, strict=False)] or hosts
    return f"postgresql://{user}{','.join(servers)}/{parts.get('dbname') or ''}"


def _listed(parts: dict[str, Any], name: str) -> list[str]:
    return str(parts[name]).split(",") if parts.get(name) else []


def _parts(url: str) -> dict[str, Any] | None:
    """None when it cannot be read, or when part of a password seems to be read as something else."""
    try:
        parts = conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return None
    misread = any("@" in str(parts.get(name, "")) for name in ("host", "port", "dbname"))
    numbered = all(port.isdecimal() for port in _listed(parts, "port") if port)
    return dict(parts) if numbered and not misread else None


def _unavailable(url: str, error: Exception | str) -> errors.DatabaseUnavailable:
    return errors.DatabaseUnavailable(
        f"cannot reach PostgreSQL at {redact(url)}: {' '.join(str(error).split())}",
        hint="check DATABASE_URL and that the server is running: faultline doctor",
    )


def spoken(error: psycopg.Error) -> errors.FaultlineError:
    """Any error of the driver's in words that help, for whoever has no better answer to it."""
    if known := translate(error):
        return known
    said = error.diag.message_primary or " ".join(str(error).split())
    if is_connection_lost(error):
        return errors.DatabaseUnavailable(
            f"PostgreSQL ended the session: {said}", hint="run it again; see faultline doctor"
        )
    match error.sqlstate:
        case "42501":
            roles = "faultline_producer, faultline_worker, faultline_inspector, faultline_operator"
            hint = error.diag.message_hint or f"grant its account a role that may: {roles}"
        case "25006":
            hint = "this is a standby, or a session that only reads: connect to the primary"
        case "55P03":
            hint = "a transaction holds the lock: faultline why JOB names it; then try again"
        case _:
            hint = "see faultline doctor, and the server's log"
    return errors.DatabaseRefused(f"PostgreSQL refused ({error.sqlstate}): {said}", hint=hint)


# ── sessions ─────────────────────────────────────────────────────────────────────────────────────


def connect_options(url: str, *, application_name: str) -> dict[str, Any]:
    given = _parts(url)
    if given is None:
        raise errors.InvalidInput(
            "not a database URL (not shown here, since it may hold a password)",
            hint="postgresql://user:password@host:5432/database, with %40 and %2F for @ and / in it",
        )
    ours = {"autocommit": True, "client_encoding": "UTF8"}
    # Of several servers the primary: the others are its standbys. Not "read-write", which also refuses a
    # primary whose account has default_transaction_read_only = on; our sessions set that to off.
    several = len(_listed(given, "host") or _listed(given, "hostaddr")) > 1
    # One that is silent has not used up the time of a lease before the next is asked.
    target = {"target_session_attrs": "primary", "connect_timeout": "3"} if several else {}
    return {**NETWORK_DEFAULTS, "application_name": application_name, **target, **given, **ours}


def connect(url: str, *, application_name: str = "faultline") -> Connection:
    """A session for tools: names are looked up as the account says."""
    return open_session(url, application_name=application_name, settings=TOOL)[0]


def open_session(
    url: str, *, application_name: str, settings: Settings = CONTROL
) -> tuple[Connection, Session]:
    options = connect_options(url, application_name=application_name)
    try:
        conn = psycopg.connect(**options)
        try:
            return conn, configure(conn, settings)
        except BaseException:
            conn.close()
            raise
    except psycopg.OperationalError as error:
        raise _unavailable(url, error) from None


async def open_session_async(
    url: str, *, application_name: str, settings: Settings = CONTROL
) -> tuple[AsyncConnection, Session]:
    options = connect_options(url, application_name=application_name)
    try:
        conn = await psycopg.AsyncConnection.connect(**options)
        try:
            return conn, await configure_async(conn, settings)
        except BaseException:
            await conn.close()
            raise
    except psycopg.OperationalError as error:
        raise _unavailable(url, error) from None


def configure(conn: Connection, settings: Settings) -> Session:
    """Probe a fresh connection and fix its settings; behind a pooler, check them instead."""
    _remember_server(conn)
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
    _remember_server(conn)
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


# ── forked children ──────────────────────────────────────────────────────────────────────────────

_servers: set[Any] = set()  # the addresses that we have sessions with


def _remember_server(conn: Connection | AsyncConnection) -> None:
    with (
        contextlib.suppress(OSError),  # reset by now: the next statement will say so
        socket.socket(fileno=os.dup(conn.fileno())) as duplicate,
    ):
        _servers.add(duplicate.getpeername())


def _leave_sessions_to_the_parent() -> None:
    """A forked child inherits our sockets, and would keep them open after the parent has died: the
    server would believe the worker alive. Each is replaced by /dev/null under its own number, so that
    nothing, not even a goodbye to the server, can be sent on it.

    Found by where they lead, and not from a list of sessions: one that is being opened is on no list.
    """
    if not _servers:
        return
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in map(int, os.listdir("/dev/fd")):  # noqa: PTH208 - numbers, not paths
        with contextlib.suppress(OSError):  # not a socket, or not connected, or closed by now
            with socket.socket(fileno=os.dup(number)) as duplicate:
                leads_to_server = duplicate.getpeername() in _servers
            if leads_to_server:
                os.dup2(nowhere, number)
    os.close(nowhere)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_sessions_to_the_parent)

# ── transactions that are not the user's to end ──────────────────────────────────────────────────


class HandlerConnection(psycopg.Connection[Any]):
    """In a job's transaction COMMIT belongs to the job: without the fence it would mean nothing."""

    is_guarded = False
    session: Session

    def commit(self) -> None:
        _refuse_if_guarded(self.is_guarded, "commit")
        super().commit()

    def rollback(self) -> None:
        _refuse_if_guarded(self.is_guarded, "rollback")
        super().rollback()


class AsyncHandlerConnection(psycopg.AsyncConnection[Any]):
    is_guarded = False
    session: Session

    async def commit(self) -> None:
        _refuse_if_guarded(self.is_guarded, "commit")
        await super().commit()

    async def rollback(self) -> None:
        _refuse_if_guarded(self.is_guarded, "rollback")
        await super().rollback()


def has_limits(conn: Connection | AsyncConnection) -> bool:
    """Whether the account limits statements or lock waits on this pooled connection."""
    return isinstance(conn, HandlerConnection | AsyncHandlerConnection) and conn.session.has_limits


def _refuse_if_guarded(is_guarded: bool, verb: str) -> None:
    if is_guarded:
        raise psycopg.ProgrammingError(
            f"{verb}() is not yours to call here: the transaction ends with its `with` block"
        )


@contextlib.contextmanager
def transaction_guarded(conn: Connection | AsyncConnection) -> Iterator[None]:
    handler_connection: Any = conn
    handler_connection.is_guarded = True
    try:
        yield
    finally:
        handler_connection.is_guarded = False


# ── pools ────────────────────────────────────────────────────────────────────────────────────────

_POOL_SECONDS = 15.0


def make_pool(
    url: str, *, max_size: int, application_name: str, settings: Settings = HANDLER
) -> Pool:
    """Not yet open: the first connection is made when the first caller needs one."""

    def prepare(conn: Connection) -> None:
        cast("HandlerConnection", conn).session = configure(conn, settings)

    def check(conn: Connection) -> None:
        if has_news(conn):
            ConnectionPool.check_connection(conn)

    options = connect_options(url, application_name=application_name)
    return AskingPool(
        connection_class=HandlerConnection,
        kwargs=options,
        min_size=0,
        max_size=max_size,
        open=False,
        configure=prepare,
        check=check,
        reconnect_timeout=0,
        timeout=_POOL_SECONDS,
    )


def make_async_pool(
    url: str, *, max_size: int, application_name: str, settings: Settings = HANDLER
) -> AsyncPool:
    async def prepare(conn: AsyncConnection) -> None:
        cast("AsyncHandlerConnection", conn).session = await configure_async(conn, settings)

    async def check(conn: AsyncConnection) -> None:
        if has_news(conn):
            await AsyncConnectionPool.check_connection(conn)

    options = connect_options(url, application_name=application_name)
    return AskingAsyncPool(
        connection_class=AsyncHandlerConnection,
        kwargs=options,
        min_size=0,
        max_size=max_size,
        open=False,
        configure=prepare,
        check=check,
        reconnect_timeout=0,
        timeout=_POOL_SECONDS,
    )


def has_news(conn: Connection | AsyncConnection) -> bool:
    """Whether the server has said something on an idle connection: as a rule, that it is over. One
    that died while idle is nobody's failed attempt, and asking the kernel costs no round trip."""
    looker = select.poll()
    looker.register(conn.fileno(), select.POLLIN)
    return bool(looker.poll(0))


def sever(conn: Connection | AsyncConnection) -> None:
    """End a session from outside, while somebody waits in it: they stop waiting. Its socket is shut down
    rather than closed, which would pull it from under them; and they are not cancelled, which would
    make the driver ask the server to cancel, and wait for a server that may be out of reach."""
    with (
        contextlib.suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(conn.fileno())) as duplicate,
    ):
        duplicate.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def pool_errors(url: str) -> Iterator[None]:
    """A pool that cannot connect says only that it gave up waiting; say what that means."""
    try:
        yield
    except PoolTimeout:
        raise _unavailable(url, f"no connection within {_POOL_SECONDS:g} s") from None
