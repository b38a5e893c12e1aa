"""The tools of behaviours.py: one handler, written once for `def` and `async def`.

A behaviour is a coroutine that awaits `do(…)` for every call of the driver. A plain handler drives it
to its end without an event loop, because nothing in it waits there.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import psycopg

from faultline import Job

EFFECT = "INSERT INTO effects (job) VALUES (%s)"
Behaviour = Callable[["Handler"], Coroutine[Any, Any, None]]
BEHAVIOURS: dict[str, tuple[Behaviour, bool]] = {}


async def do(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


def drive(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never suspends, without an event loop."""
    try:
        work.send(None)
    except StopIteration:
        return
    work.close()
    raise AssertionError("it waits for an event loop")


@contextlib.asynccontextmanager
async def either(manager: Any, *, is_async: bool) -> AsyncIterator[Any]:
    if is_async:
        async with manager as entered:
            yield entered
    else:
        with manager as entered:
            yield entered


class Handler:
    """A job and the ways to write for it, sync or async."""

    def __init__(self, job: Job, url: str, *, is_async: bool) -> None:
        self.job = job
        self.url = url
        self.is_async = is_async

    def either(self, manager: Any) -> Any:
        return either(manager, is_async=self.is_async)

    def block(self) -> Any:
        return self.either(self.job.transaction())

    def step(self) -> Any:
        return self.either(self.job.fenced())

    @contextlib.asynccontextmanager
    async def own(self, *, autocommit: bool = False) -> AsyncIterator[Any]:
        """A connection of the handler's own; that it was cut is not an error here."""
        kind: Any = psycopg.AsyncConnection if self.is_async else psycopg.Connection
        conn = await do(kind.connect(self.url, autocommit=autocommit))
        try:
            yield conn
        finally:
            await do(conn.close())

    async def write(self, conn: Any) -> None:
        await do(conn.execute(EFFECT, [self.job.id]))

    def by_hand(self, tx: Any, *, client: bool = False) -> Any:
        """A cursor that was not made by the connection."""
        if client:
            return psycopg.AsyncClientCursor(tx) if self.is_async else psycopg.ClientCursor(tx)
        return psycopg.AsyncCursor(tx) if self.is_async else psycopg.Cursor(tx)


def behaviour(*, succeeds: bool = False) -> Callable[[Behaviour], Behaviour]:
    def add(function: Behaviour) -> Behaviour:
        BEHAVIOURS[function.__name__] = function, succeeds
        return function

    return add


SWALLOWED = (Exception,)
