"""The pulse of the database: whether it answers, and whether it is one that this API can work with.

It is felt on a session of its own, so that a pool whose connections are all in use is not taken for a
server that is away; and once at a time, however many ask.
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

SEVERED_SECONDS = 0.5  # by then whoever waited has noticed

_ALIVE: Statement[bool] = Statement("SELECT true", (), lambda rows: bool(rows[0][0]))
_WRITABLE: Statement[bool] = Statement(
    "SELECT current_setting('transaction_read_only') = 'off'", (), lambda rows: bool(rows[0][0])
)
_VERSION: Statement[int] = Statement(
    "SELECT coalesce(max(version), 0) FROM faultline.migrations", (), lambda rows: int(rows[0][0])
)


def _only_planned(statement: Statement[Any]) -> Statement[None]:
    """Nothing of it is run, but it has to make sense here, and to be allowed."""
    return replace(statement, sql=f"EXPLAIN {statement.sql}", read=lambda rows: None)


class Pulse:
    """`says`: what an enqueue says to the database."""

    def __init__(self, url: str, *, seconds: float, says: Sequence[Statement[Any]]) -> None:
        self._says = tuple(map(_only_planned, says))
        self._link = ReconnectingSession(url, purpose="api watch", needs_primary=False)
        self._seconds = seconds
        self._asking: dict[str, asyncio.Task[Any]] = {}
        self._conn: AsyncConnection | None = None
        self._away_since: float | None = None

    async def feel(self, *, within_seconds: float | None = None) -> float:
        """How many seconds it took to answer; DatabaseUnavailable if it did not."""
        began = time.monotonic()
        await self._ask(_ALIVE, within_seconds)
        return time.monotonic() - began

    async def require_ready(self) -> None:
        """SchemaMismatch or DatabaseUnavailable when a job could not be enqueued there."""
        if not await self._ask(_WRITABLE):
            await self._link.drop()  # a new session may find the primary
            raise DatabaseUnavailable(
                "the database only reads: it is a standby, or set to read only"
            )
        version, known = await self._ask(_VERSION), latest_version()
        if version < known:
            raise SchemaMismatch(
                f"the database is at schema version {version}; this Faultline needs {known}",
                hint="run: faultline migrate",
            )
        if version > known:
            await self._require_understood(version)

    async def _require_understood(self, version: int) -> None:
        """While an upgrade rolls out, the database is ahead of whoever is not replaced yet. What it does
        not take from an older release any more is not there any more, or has another shape."""
        for statement in self._says:
            try:
                await self._ask(statement)
            except (SchemaMismatch, DriverError) as error:
                refusal = error.__cause__ if isinstance(error.__cause__, DriverError) else error
                raise SchemaMismatch(
                    f"the database is at schema version {version}, this Faultline knows"
                    f" {latest_version()}, and its jobs are not taken any more:"
                    f" {str(refusal).splitlines()[0]}",
                    hint="upgrade the faultline package",
                ) from error

    async def _ask(self, statement: Statement[T], within_seconds: float | None = None) -> T:
        """Whoever asks while somebody asks gets the same answer."""
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
            self.note_away(error)
            raise error
        answered: T = task.result()
        return answered

    def _forget(self, sql: str, done: asyncio.Task[Any]) -> None:
        self._asking.pop(sql, None)
        if not done.cancelled():
            done.exception()  # whoever asked may have given up: then nobody else looks at it

    async def _run(self, statement: Statement[T]) -> T:
        try:
            self._conn = await self._link.connection()
            answered = await run_async(self._conn, statement)
        except (DatabaseUnavailable, DriverError) as error:
            if is_transient(error):
                await self._link.drop()
                self.note_away(error)
                raise DatabaseUnavailable(" ".join(str(error).split())) from error
            raise
        self.note_back()
        return answered

    def note_away(self, error: Exception) -> None:
        """Said once, whoever noticed it."""
        if self._away_since is None:
            self._away_since = time.monotonic()
            emit(Event.DATABASE_UNAVAILABLE, purpose="api", error=" ".join(str(error).split()))

    def note_back(self) -> None:
        if self._away_since is not None:
            seconds = round(time.monotonic() - self._away_since, 3)
            emit(Event.DATABASE_BACK, purpose="api", away_seconds=seconds)
            self._away_since = None

    async def close(self) -> None:
        if self._asking:
            if self._conn is not None:
                sever(self._conn)
            await asyncio.wait(self._asking.values(), timeout=SEVERED_SECONDS)
        await self._link.close()
