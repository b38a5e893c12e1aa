"""Checks whether the database answers and accepts this API's jobs.

The check has a session of its own, so that a pool without free connections is not mistaken for an outage.
Concurrent callers share one check.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from faultline.errors import DatabaseUnavailable, SchemaMismatch
from faultline.events import Event, emit
from faultline.postgres.driver import DriverError
from faultline.postgres.migrate import latest_version
from faultline.postgres.reconnecting import ReconnectingSession, is_transient
from faultline.postgres.sessions import AsyncConnection, run_async, sever
from faultline.statements.statement import Statement

T = TypeVar("T")

SEVERED_SECONDS = 0.5  # then the tasks that used a severed connection have noticed

_ALIVE: Statement[bool] = Statement("SELECT true", (), lambda rows: bool(rows[0][0]))
_WRITABLE: Statement[bool] = Statement(
    "SELECT current_setting('transaction_read_only') = 'off'", (), lambda rows: bool(rows[0][0])
)
_VERSION: Statement[int] = Statement(
    "SELECT coalesce(max(version), 0) FROM faultline.migrations", (), lambda rows: int(rows[0][0])
)


def _explained(statement: Statement[Any]) -> Statement[None]:
    """EXPLAIN runs nothing, but fails if a function or a permission is missing."""
    return replace(statement, sql=f"EXPLAIN {statement.sql}", read=lambda rows: None)


class DatabaseCheck:
    """`enqueue_statements` are the statements that an enqueue sends."""

    def __init__(
        self, url: str, *, seconds: float, enqueue_statements: Sequence[Statement[Any]]
    ) -> None:
        self._enqueue_statements = tuple(map(_explained, enqueue_statements))
        self._link = ReconnectingSession(url, purpose="api watch", needs_primary=False)
        self._seconds = seconds
        self._asking: dict[str, asyncio.Task[Any]] = {}
        self._conn: AsyncConnection | None = None
        self._unavailable_since: float | None = None

    async def ping(self, *, within_seconds: float | None = None) -> float:
        """The seconds until the database answer; DatabaseUnavailable if it did not."""
        began = time.monotonic()
        await self._ask(_ALIVE, within_seconds)
        return time.monotonic() - began

    async def require_ready(self) -> None:
        """Raises SchemaMismatch or DatabaseUnavailable if a job could not be enqueued."""
        if not await self._ask(_WRITABLE):
            await self._link.drop()  # a new session may find the primary
            raise DatabaseUnavailable(
                "the database is read-only: it is a standby, or set to read-only"
            )
        version, known = await self._ask(_VERSION), latest_version()
        if version < known:
            raise SchemaMismatch(
                f"the database is at schema version {version}; this Faultline needs {known}",
                hint="faultline migrate",
            )
        if version > known:
            await self._require_compatible(version)

    async def _require_compatible(self, version: int) -> None:
        """During a rolling upgrade the database is newer than this process.

        If the new schema does not accept this release's enqueues any more, their EXPLAIN fails.
        """
        for statement in self._enqueue_statements:
            try:
                await self._ask(statement)
            except (SchemaMismatch, DriverError) as error:
                refused = error.__cause__ if isinstance(error.__cause__, DriverError) else error
                raise SchemaMismatch(
                    f"the database is at schema version {version}, this Faultline knows"
                    f" {latest_version()}, and it does not accept this version's jobs:"
                    f" {str(refused).splitlines()[0]}",
                    hint="upgrade the faultline package",
                ) from error

    async def _ask(self, statement: Statement[T], within_seconds: float | None = None) -> T:
        """Concurrent callers share one statement and its answer."""
        task = self._asking.get(statement.sql)
        if task is None:
            task = asyncio.create_task(self._run(statement))
            self._asking[statement.sql] = task
            task.add_done_callback(lambda done: self._forget(statement.sql, done))
        seconds = min(self._seconds, within_seconds or self._seconds)
        done, _ = await asyncio.wait({task}, timeout=seconds)
        if not done:
            if self._conn is not None:
                sever(self._conn)
            error = DatabaseUnavailable(f"PostgreSQL did not answer within {seconds:g} s")
            self.note_unavailable(error)
            raise error
        answer: T = task.result()
        return answer

    def _forget(self, sql: str, done: asyncio.Task[Any]) -> None:
        self._asking.pop(sql, None)
        if not done.cancelled():
            done.exception()  # its callers may have given up; asyncio would warn about it

    async def _run(self, statement: Statement[T]) -> T:
        try:
            self._conn = await self._link.connection()
            answer = await run_async(self._conn, statement)
        except (DatabaseUnavailable, DriverError) as error:
            if is_transient(error):
                await self._link.drop()
                self.note_unavailable(error)
                raise DatabaseUnavailable(" ".join(str(error).split())) from error
            raise
        self.note_available()
        return answer

    def note_unavailable(self, error: Exception) -> None:
        """Log the start of an outage, once."""
        if self._unavailable_since is None:
            self._unavailable_since = time.monotonic()
            emit(Event.DATABASE_UNAVAILABLE, purpose="api", error=" ".join(str(error).split()))

    def note_available(self) -> None:
        if self._unavailable_since is not None:
            seconds = round(time.monotonic() - self._unavailable_since, 3)
            emit(Event.DATABASE_BACK, purpose="api", away_seconds=seconds)
            self._unavailable_since = None

    async def close(self) -> None:
        if self._asking:
            if self._conn is not None:
                sever(self._conn)
            await asyncio.wait(self._asking.values(), timeout=SEVERED_SECONDS)
        await self._link.close()
