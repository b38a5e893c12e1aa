"""The inspector's way to the database: a few sessions that come back, and can only read.

Two guards, either of which would do: every session and every transaction is read-only, and where the
account is a member of faultline_inspector, it acts as that role, which may write to no table.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import LiteralString, TypeVar

from faultline.errors import DatabaseRefused, DatabaseUnavailable, FaultlineError
from faultline.events import Event, emit
from faultline.postgres.driver import DriverError, InsufficientPrivilege, QueryCanceled
from faultline.postgres.errors import explain_error
from faultline.postgres.reconnecting import ReconnectingSession
from faultline.postgres.sessions import AsyncConnection, run_async, run_together_async, sever
from faultline.statements.session_settings import Session
from faultline.statements.statement import Statement

T = TypeVar("T")

ROLE = "faultline_inspector"
SESSIONS = 4
CONNECT_SECONDS = 5.0  # also the wait for a session that is free
STATEMENT_SECONDS = 4  # the server gives up first: it knows why
LOOK_SECONDS = 6.0

_IS_MEMBER: LiteralString = (
    "SELECT EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = %s AND pg_has_role(r.oid, 'MEMBER')"
    " AND has_schema_privilege(r.oid, to_regnamespace('faultline'), 'USAGE'))"
)
# One moment for everything in it. Planned for indexes: all that is read here has one, and a table that
# was never analyzed must not be read whole for want of statistics.
_BEGIN: LiteralString = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"
    f" SET LOCAL statement_timeout = '{STATEMENT_SECONDS}s'; SET LOCAL lock_timeout = '1s';"
    " SET LOCAL idle_in_transaction_session_timeout = '10s'; SET LOCAL timezone = 'UTC';"
    " SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off"
)
_BEGIN_AS_ROLE: LiteralString = _BEGIN + "; SET LOCAL ROLE faultline_inspector"


class Look:
    """One read-only transaction: what is read in it is of one moment."""

    def __init__(self, conn: AsyncConnection) -> None:
        self._conn = conn

    async def read(self, statement: Statement[T]) -> T:
        return await run_async(self._conn, statement)


class Reader:
    def __init__(self, url: str, *, sessions: int = SESSIONS) -> None:
        self._links: asyncio.LifoQueue[ReconnectingSession] = asyncio.LifoQueue()
        for _ in range(sessions):
            self._links.put_nowait(
                ReconnectingSession(
                    url, purpose="inspector", on_connect=self._confine, needs_primary=False
                )
            )
        self._sessions = sessions
        self._acts_as_role = False
        self._is_away = False

    @property
    def acts_as(self) -> str | None:
        """The role that the sessions act as, once there has been one; None: as the account itself."""
        return ROLE if self._acts_as_role else None

    @contextlib.asynccontextmanager
    async def look(self) -> AsyncIterator[Look]:
        try:
            async with self._link() as link:
                async with asyncio.timeout(CONNECT_SECONDS):
                    conn = await link.connection()
                with _severed_when_late(conn):
                    begin = _BEGIN_AS_ROLE if self._acts_as_role else _BEGIN
                    await run_together_async(conn, Statement(begin, (), lambda rows: None))
                    try:
                        yield Look(conn)
                    except FaultlineError:  # there is no such job, say: the session is sound
                        await conn.execute("ROLLBACK")
                        raise
                    await conn.execute("COMMIT")
        except QueryCanceled as error:
            raise self._noted(_late(STATEMENT_SECONDS)) from error
        except InsufficientPrivilege as error:
            raise DatabaseRefused(
                f"PostgreSQL refused (42501): {error.diag.message_primary}",
                hint="GRANT faultline_inspector TO its account; faultline migrate --roles makes the role",
            ) from error
        except DriverError as error:
            raise self._noted(explain_error(error)) from error
        except TimeoutError as error:
            raise self._noted(_late(CONNECT_SECONDS)) from error
        except FaultlineError as error:
            raise self._noted(error) from None
        if self._is_away:
            self._is_away = False
            emit(Event.DATABASE_BACK, purpose="inspector")

    @contextlib.asynccontextmanager
    async def _link(self) -> AsyncIterator[ReconnectingSession]:
        async with asyncio.timeout(CONNECT_SECONDS):
            link = await self._links.get()
        try:
            yield link
        except BaseException as error:
            # Whatever it was doing, the next look begins with a sound session.
            if not isinstance(error, FaultlineError) or isinstance(error, DatabaseUnavailable):
                await link.drop()
            raise
        finally:
            self._links.put_nowait(link)

    def _noted(self, error: FaultlineError) -> FaultlineError:
        """Said once for each time that the database goes away."""
        if isinstance(error, DatabaseUnavailable) and not self._is_away:
            self._is_away = True
            emit(Event.DATABASE_UNAVAILABLE, purpose="inspector", error=error.message)
        return error

    async def _confine(self, conn: AsyncConnection, session: Session) -> None:
        conn.prepare_threshold = None  # a plan for the page at hand, never one made for another
        self._acts_as_role = await _may_act_as_role(conn)
        if session.is_pooled:  # what is set for a session would be another client's; BEGIN says it
            return
        await conn.execute("SET default_transaction_read_only = on")
        if self._acts_as_role:
            await conn.execute("SET ROLE faultline_inspector")

    async def close(self) -> None:
        for _ in range(self._sessions):
            await (await self._links.get()).close()


async def _may_act_as_role(conn: AsyncConnection) -> bool:
    """Tried, since a member may have been denied it: GRANT … WITH SET FALSE."""
    is_member = Statement(_IS_MEMBER, (ROLE,), lambda rows: bool(rows[0][0]))
    if not await run_async(conn, is_member):
        return False
    try:
        await conn.execute("BEGIN; SET LOCAL ROLE faultline_inspector; ROLLBACK")
    except InsufficientPrivilege:
        await conn.execute("ROLLBACK")
        return False
    return True


def _late(seconds: float) -> DatabaseUnavailable:
    return DatabaseUnavailable(
        f"PostgreSQL did not answer within {seconds:g} s", hint="see faultline doctor"
    )


@contextlib.contextmanager
def _severed_when_late(conn: AsyncConnection) -> Iterator[None]:
    """Cut the connection of a look that takes too long."""
    is_late = False

    def give_up() -> None:
        nonlocal is_late
        is_late = True
        sever(conn)

    timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, give_up)
    try:
        yield
    except DriverError as error:
        if is_late:
            raise _late(LOOK_SECONDS) from error
        raise
    finally:
        timer.cancel()
