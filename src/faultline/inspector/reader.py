"""The inspector's database sessions: a few, read-only, reconnecting.

Two guards, either of which is enough: every session and every transaction is read-only, and if the account
is a member of faultline_inspector, the session acts as that role, which may not write to any table.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import LiteralString, TypeVar

from faultline.errors import DatabaseRefused, DatabaseUnavailable, FaultlineError
from faultline.events import Event, emit
from faultline.inspector.inspector_settings import DATABASE_SESSIONS
from faultline.postgres.driver import DriverError, InsufficientPrivilege, QueryCanceled
from faultline.postgres.errors import explain_error
from faultline.postgres.reconnecting import ReconnectingSession
from faultline.postgres.sessions import AsyncConnection, run_async, run_together_async, sever
from faultline.statements.session_settings import Session
from faultline.statements.statement import Statement

T = TypeVar("T")

ROLE = "faultline_inspector"
CONNECT_SECONDS = 5.0  # also the longest wait for a free session
# Shorter than TRANSACTION_SECONDS, so that PostgreSQL cancels the statement first: its error says why.
STATEMENT_SECONDS = 4
TRANSACTION_SECONDS = 6.0

_IS_MEMBER: LiteralString = """
    SELECT EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = %s AND pg_has_role(r.oid, 'MEMBER')
        AND has_schema_privilege(r.oid, to_regnamespace('faultline'), 'USAGE'))
    """
# Repeatable read: all statements of a transaction see the same snapshot. Sequential scans are off because
# every query here has an index, but PostgreSQL may prefer a scan if the table was never analyzed.
_BEGIN: LiteralString = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"
    f" SET LOCAL statement_timeout = '{STATEMENT_SECONDS}s'; SET LOCAL lock_timeout = '1s';"
    " SET LOCAL idle_in_transaction_session_timeout = '10s'; SET LOCAL timezone = 'UTC';"
    " SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off"
)
_BEGIN_AS_ROLE: LiteralString = _BEGIN + "; SET LOCAL ROLE faultline_inspector"


class ReadTransaction:
    """One read-only transaction: all its statements see the database at one moment."""

    def __init__(self, conn: AsyncConnection) -> None:
        self._conn = conn

    async def read(self, statement: Statement[T]) -> T:
        return await run_async(self._conn, statement)


class Reader:
    def __init__(self, url: str, *, sessions: int = DATABASE_SESSIONS) -> None:
        self._idle_sessions: asyncio.LifoQueue[ReconnectingSession] = asyncio.LifoQueue()
        for _ in range(sessions):
            self._idle_sessions.put_nowait(
                ReconnectingSession(
                    url, purpose="inspector", on_connect=self._confine, needs_primary=False
                )
            )
        self._sessions = sessions
        self._acts_as_role = False
        self._is_down = False

    @property
    def acts_as(self) -> str | None:
        """The role of the sessions, known after the first connection; None: the account."""
        return ROLE if self._acts_as_role else None

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[ReadTransaction]:
        try:
            async with self._borrow_session() as session:
                async with asyncio.timeout(CONNECT_SECONDS):
                    conn = await session.connection()
                with _severed_when_timed_out(conn):
                    begin = _BEGIN_AS_ROLE if self._acts_as_role else _BEGIN
                    await run_together_async(conn, Statement(begin, (), lambda rows: None))
                    try:
                        yield ReadTransaction(conn)
                    except FaultlineError:  # such as UnknownJob: the session is intact
                        await conn.execute("ROLLBACK")
                        raise
                    await conn.execute("COMMIT")
        except QueryCanceled as error:
            raise self._logged(_timed_out(STATEMENT_SECONDS)) from error
        except InsufficientPrivilege as error:
            raise DatabaseRefused(
                f"PostgreSQL refused (42501): {error.diag.message_primary}",
                hint="GRANT faultline_inspector TO its account; faultline migrate --roles makes the role",
            ) from error
        except DriverError as error:
            raise self._logged(explain_error(error)) from error
        except TimeoutError as error:
            raise self._logged(_timed_out(CONNECT_SECONDS)) from error
        except FaultlineError as error:
            raise self._logged(error) from None
        if self._is_down:
            self._is_down = False
            emit(Event.DATABASE_BACK, purpose="inspector")

    @contextlib.asynccontextmanager
    async def _borrow_session(self) -> AsyncIterator[ReconnectingSession]:
        async with asyncio.timeout(CONNECT_SECONDS):
            session = await self._idle_sessions.get()
        try:
            yield session
        except BaseException as error:
            # The next transaction starts on a new connection.
            if not isinstance(error, FaultlineError) or isinstance(error, DatabaseUnavailable):
                await session.drop()
            raise
        finally:
            self._idle_sessions.put_nowait(session)

    def _logged(self, error: FaultlineError) -> FaultlineError:
        """Log the start of an outage, once."""
        if isinstance(error, DatabaseUnavailable) and not self._is_down:
            self._is_down = True
            emit(Event.DATABASE_UNAVAILABLE, purpose="inspector", error=error.message)
        return error

    async def _confine(self, conn: AsyncConnection, session: Session) -> None:
        conn.prepare_threshold = None  # a prepared statement would keep the plan of another page
        self._acts_as_role = await _may_act_as_role(conn)
        if session.is_pooled:  # session settings would reach other clients: BEGIN sets them
            return
        await conn.execute("SET default_transaction_read_only = on")
        if self._acts_as_role:
            await conn.execute("SET ROLE faultline_inspector")

    async def close(self) -> None:
        for _ in range(self._sessions):
            await (await self._idle_sessions.get()).close()


async def _may_act_as_role(conn: AsyncConnection) -> bool:
    """Tries it: a member may lack the permission to SET ROLE (GRANT … WITH SET FALSE)."""
    is_member = Statement(_IS_MEMBER, (ROLE,), lambda rows: bool(rows[0][0]))
    if not await run_async(conn, is_member):
        return False
    try:
        await conn.execute("BEGIN; SET LOCAL ROLE faultline_inspector; ROLLBACK")
    except InsufficientPrivilege:
        await conn.execute("ROLLBACK")
        return False
    return True


def _timed_out(seconds: float) -> DatabaseUnavailable:
    return DatabaseUnavailable(
        f"PostgreSQL did not answer within {seconds:g} s", hint="see faultline doctor"
    )


@contextlib.contextmanager
def _severed_when_timed_out(conn: AsyncConnection) -> Iterator[None]:
    """Close the socket of a transaction that takes longer than TRANSACTION_SECONDS."""
    is_late = False

    def give_up() -> None:
        nonlocal is_late
        is_late = True
        sever(conn)

    timer = asyncio.get_running_loop().call_later(TRANSACTION_SECONDS, give_up)
    try:
        yield
    except DriverError as error:
        if is_late:
            raise _timed_out(TRANSACTION_SECONDS) from error
        raise
    finally:
        timer.cancel()
