"""Reports the calls of asyncpg to a monitor, if the application has imported it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from faultline.testing.zombies.monitor import current_monitor, disconnected_loops
from faultline.testing.zombies.points import describe_query

_is_inside: ContextVar[bool] = ContextVar("faultline_asyncpg_call", default=False)


@dataclass(frozen=True)
class AsyncpgSession:
    conn: Any

    @property
    def is_idle(self) -> bool:
        return not self.conn.is_in_transaction()

    def end(self) -> None:
        from faultline.adapters.asyncpg import terminate

        terminate(self.conn)

    def break_off(self) -> None:
        self.end()
        raise ConnectionResetError("the server closed the connection (injected by zombies)")


@contextlib.contextmanager
def patched_asyncpg() -> Iterator[None]:
    if "asyncpg" not in sys.modules:
        yield
        return
    from asyncpg.connection import Connection
    from asyncpg.prepared_stmt import PreparedStatement

    # What sends a statement: `execute` without arguments, the methods that fetch, and prepared statements.
    patched: list[tuple[Any, str, Callable[[Any], Any], Callable[..., str]]] = [
        *(
            (Connection, name, lambda conn: conn, lambda _, query, *args: str(query))
            for name in ("execute", "_execute", "_executemany")
        ),
        (
            PreparedStatement,
            "_PreparedStatement__do_execute",
            lambda statement: statement._connection,
            lambda statement, *args: str(statement._query),
        ),
    ]
    originals = [(owner, name, getattr(owner, name)) for owner, name, _, _ in patched]
    for (owner, name, original), (_, _, conn_of, query_of) in zip(originals, patched, strict=True):
        setattr(owner, name, _reporting(original, conn_of, query_of))
    try:
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def _reporting(
    original: Callable[..., Any], conn_of: Callable[[Any], Any], query_of: Callable[..., str]
) -> Callable[..., Any]:
    @functools.wraps(original)
    async def reported(self: Any, *args: Any, **kwargs: Any) -> Any:
        monitor, session = current_monitor.get(), AsyncpgSession(conn_of(self))
        if monitor is None or _is_inside.get():
            if monitor is None and asyncio.get_running_loop() in disconnected_loops:
                session.break_off()
            return await original(self, *args, **kwargs)
        reset = _is_inside.set(True)
        try:
            what = describe_query(query_of(self, *args), is_idle=session.is_idle)
            point = monitor.before_call(session, what)
            result = await original(self, *args, **kwargs)
            if point is not None:
                monitor.after_call(session, point)
            return result
        finally:
            _is_inside.reset(reset)

    return reported
