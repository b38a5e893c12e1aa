"""The connection that a handler gets for one block: it cannot end the transaction.

`lend` makes a new connection object over the session of a pooled one, for one block. Settings of the
handler (row factory, adapters, cursor factory) therefore end with the block, and so does every reference
that the handler keeps.

There are three guards, each for what the one before cannot see:
1. Statements that begin or end a transaction are refused before they are sent.
2. After every operation of the driver the state of the transaction is read from the protocol. If it has
   ended, the session is closed at once and NotCommitted is raised.
3. PostgreSQL refuses to commit the transaction before its block has ended (sql/handler_transactions.sql),
   and the session's default is read-only, so that nothing can be written outside of the block.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, NoReturn, TypeVar

import psycopg
from psycopg import sql
from psycopg.adapt import AdaptersMap
from psycopg.pq import PipelineStatus, TransactionStatus

from faultline.errors import InvalidInput, NotCommitted
from faultline.postgres.answer_limit import AsyncBoundedConnection, BoundedConnection
from faultline.postgres.transaction_control import find_transaction_control

# A statement of another thread, a stream or a COPY may be unfinished when a block ends.
_UNDER_WAY_SECONDS = 5.0
# Locks and channels that should not wait for the session's next block. Found by their words only.
_LEFT_BEHIND = re.compile(
    r"(?P<locks>pg_(?:try_)?advisory_lock|\blisten\b)"
    r"|(?P<statements>\bprepare\b|\bsession\s+authorization\b)",
    re.IGNORECASE,
)
_HINT = "the transaction ends with its `with` block; savepoints (tx.transaction()) are yours"


class _Lent:
    """The state of one lent connection, for threads and for asyncio."""

    __slots__ = ("has_ended", "leaves_locks", "leaves_statements", "lost")

    def __init__(self) -> None:
        self.has_ended = False
        self.lost: NotCommitted | None = None
        self.leaves_locks = False  # the session holds locks or listens to channels
        # statements prepared by SQL, or another role: the session is not used again
        self.leaves_statements = False

    def require_usable(self, operation: Any) -> None:
        if self.has_ended:
            operation.close()
            raise InvalidInput(
                "this connection belonged to a block of job.transaction() or job.fenced() that has ended",
                hint="open another block, and use its connection inside of it only",
            )
        if self.lost is not None:
            operation.close()
            raise self.lost

    def look(self, conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
        """Close the session if its transaction has ended, and record that it was lost."""
        if self.lost is None and conn.pgconn.transaction_status == TransactionStatus.IDLE:
            self.lose(conn, "was committed or rolled back before its block had ended")

    def require_committable(
        self, conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
    ) -> None:
        """Raise NotCommitted unless the transaction can be committed now. Needs the lock."""
        pgconn = conn.pgconn
        self.look(conn)
        if self.lost is None and pgconn.pipeline_status != PipelineStatus.OFF:
            self.lose(conn, "was left with a pipeline open")
        if self.lost is None and pgconn.transaction_status == TransactionStatus.ACTIVE:
            self.lose(conn, "was left with a statement, stream or COPY under way")
        if self.lost is None and pgconn.transaction_status == TransactionStatus.UNKNOWN:
            self.lose(conn, "ended together with its session")
        if self.lost is not None:
            raise self.lost

    def lose(self, conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], how: str) -> None:
        self.lost = _lost(how)
        conn.pgconn.finish()


def _lost(how: str) -> NotCommitted:
    return NotCommitted(f"the job's transaction {how}: nothing of it counts", hint=_HINT)


class HandlerConnection(BoundedConnection):
    """The connection of `with job.transaction()` and `with job.fenced()`."""

    _lent: _Lent

    def __del__(self, *_: Any) -> None:
        """Do nothing: the session belongs to the pooled connection."""

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """Run an operation of the driver; every one passes here."""
        lent = self._lent
        lent.require_usable(gen)
        try:
            answer = super().wait(gen, *args, **kwargs)
        except psycopg.Error as error:
            lent.look(self)
            if lent.lost is not None:
                raise lent.lost from error
            raise
        lent.look(self)
        if lent.lost is not None:
            raise lent.lost
        return answer

    def commit(self) -> None:
        _refuse("commit()")

    def rollback(self) -> None:
        _refuse("rollback()")

    def close(self) -> None:
        if not self._lent.has_ended:
            _refuse("close()")


class AsyncHandlerConnection(AsyncBoundedConnection):
    """The connection of `async with job.transaction()` and `async with job.fenced()`."""

    _lent: _Lent

    def __del__(self, *_: Any) -> None:
        """Do nothing: the session belongs to the pooled connection."""

    async def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """Run an operation of the driver; every one passes here."""
        lent = self._lent
        lent.require_usable(gen)
        try:
            answer = await super().wait(gen, *args, **kwargs)
        except psycopg.Error as error:
            lent.look(self)
            if lent.lost is not None:
                raise lent.lost from error
            raise
        lent.look(self)
        if lent.lost is not None:
            raise lent.lost
        return answer

    async def commit(self) -> None:
        _refuse("commit()")

    async def rollback(self) -> None:
        _refuse("rollback()")

    async def close(self) -> None:
        if not self._lent.has_ended:
            _refuse("close()")


Lendable = TypeVar("Lendable", HandlerConnection, AsyncHandlerConnection)


def lend(conn: psycopg.Connection[Any]) -> HandlerConnection:
    """Make a connection object for one block, over the session of a pooled connection."""
    lent = _over(HandlerConnection, conn)
    lent.cursor_factory = _HandlerCursor
    lent.server_cursor_factory = _HandlerServerCursor
    return lent


def lend_async(conn: psycopg.AsyncConnection[Any]) -> AsyncHandlerConnection:
    lent = _over(AsyncHandlerConnection, conn)
    lent.cursor_factory = _AsyncHandlerCursor
    lent.server_cursor_factory = _AsyncHandlerServerCursor
    return lent


def _over(kind: type[Lendable], conn: Any) -> Lendable:
    """Share the lock, the prepared statements and the session with the pool's object."""
    lent = kind.__new__(kind)
    lent.__dict__.update(conn.__dict__)
    lent._adapters = AdaptersMap(conn.adapters)
    lent._lent = _Lent()
    return lent


def end(lent: HandlerConnection) -> None:
    """End the lending; raises NotCommitted if the transaction cannot be committed."""
    if not lent.lock.acquire(timeout=_UNDER_WAY_SECONDS):
        raise _busy(lent)
    try:
        lent._lent.require_committable(lent)
        lent._lent.has_ended = True
    finally:
        lent.lock.release()


async def end_async(lent: AsyncHandlerConnection) -> None:
    try:
        if lent.lock.locked():
            await asyncio.wait_for(lent.lock.acquire(), _UNDER_WAY_SECONDS)
        else:
            await lent.lock.acquire()
    except TimeoutError:
        raise _busy(lent) from None
    try:
        lent._lent.require_committable(lent)
        lent._lent.has_ended = True
    finally:
        lent.lock.release()


def _busy(lent: HandlerConnection | AsyncHandlerConnection) -> NotCommitted:
    """The error of a block that ends while another thread uses its connection.

    The connection is not closed here, because that thread may be inside the driver. `give_up` severs it.
    """
    lent._lent.lost = _lost("was left with a statement, stream or COPY under way")
    return lent._lent.lost


def give_up(lent: HandlerConnection | AsyncHandlerConnection) -> NotCommitted | None:
    """End the lending after an error; returns why the transaction was lost, if it was."""
    lent._lent.has_ended = True
    lent._notice_handlers.clear()
    lent._notify_handlers.clear()
    if lent.pgconn.pipeline_status != PipelineStatus.OFF:
        lent.pgconn.finish()
    return lent._lent.lost


def left_behind(text: str) -> bool:
    """Whether a statement seems to leave something in its session."""
    return _LEFT_BEHIND.search(text) is not None


def leaves_locks(lent: HandlerConnection | AsyncHandlerConnection | None) -> bool:
    """Whether the block seems to have taken locks that outlive its transaction."""
    return lent is not None and lent._lent.leaves_locks


def leaves_statements(lent: HandlerConnection | AsyncHandlerConnection | None) -> bool:
    """Whether the block seems to have prepared statements by SQL."""
    return lent is not None and lent._lent.leaves_statements


# ── statements ───────────────────────────────────────────────────────────────────────────────────


class _HandlerCursor(psycopg.Cursor[Any]):
    def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
        _refuse_transaction_control(query, self)
        return super().execute(query, *args, **kwargs)

    def executemany(self, query: Any, *args: Any, **kwargs: Any) -> None:
        _refuse_transaction_control(query, self)
        super().executemany(query, *args, **kwargs)

    def stream(self, query: Any, *args: Any, **kwargs: Any) -> Any:
        _refuse_transaction_control(query, self)
        return super().stream(query, *args, **kwargs)

    def copy(self, statement: Any, *args: Any, **kwargs: Any) -> Any:
        _refuse_transaction_control(statement, self)
        return super().copy(statement, *args, **kwargs)


class _HandlerServerCursor(psycopg.ServerCursor[Any]):
    def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
        _refuse_transaction_control(query, self)
        return super().execute(query, *args, **kwargs)


class _AsyncHandlerCursor(psycopg.AsyncCursor[Any]):
    async def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
        _refuse_transaction_control(query, self)
        return await super().execute(query, *args, **kwargs)

    async def executemany(self, query: Any, *args: Any, **kwargs: Any) -> None:
        _refuse_transaction_control(query, self)
        await super().executemany(query, *args, **kwargs)

    def stream(self, query: Any, *args: Any, **kwargs: Any) -> Any:
        _refuse_transaction_control(query, self)
        return super().stream(query, *args, **kwargs)

    def copy(self, statement: Any, *args: Any, **kwargs: Any) -> Any:
        _refuse_transaction_control(statement, self)
        return super().copy(statement, *args, **kwargs)


class _AsyncHandlerServerCursor(psycopg.AsyncServerCursor[Any]):
    async def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
        _refuse_transaction_control(query, self)
        return await super().execute(query, *args, **kwargs)


def _refuse_transaction_control(query: Any, cursor: Any) -> None:
    text = _text(query, cursor)
    if found := find_transaction_control(text):
        _refuse(found)
    if left := _LEFT_BEHIND.search(text):
        lent: _Lent = cursor.connection._lent
        lent.leaves_locks |= left["locks"] is not None
        lent.leaves_statements |= left["statements"] is not None


def _text(query: Any, context: Any) -> str:
    match query:
        case str():
            return query
        case bytes():
            return query.decode(errors="replace")
        case sql.Composable():
            return query.as_string(context)
    # A template string (Python 3.14): between its parts are values or names.
    return " _ ".join(getattr(query, "strings", ()))


def _refuse(what: str) -> NoReturn:
    raise psycopg.ProgrammingError(f"{what} is not yours to call here: {_HINT}")
