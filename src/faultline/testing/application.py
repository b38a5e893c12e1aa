"""Points an application at a test's database, and takes its connections back afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from typing import Any

from faultline.app import Faultline
from faultline.postgres.address import FILE_VARIABLE, VARIABLE

_CLOSE_SECONDS = 10.0
_closing: set[asyncio.Task[Any]] = set()  # the event loop itself keeps only weak references


@contextlib.contextmanager
def using(app: Faultline, database_url: str) -> Iterator[Faultline]:
    """Within the block the application, and DATABASE_URL, lead to `database_url`.

    Also for an application that was given a URL of its own. Connections that it had open to another
    database are closed on the way in, and those to this one on the way out.
    """
    own_url = app._given_url
    variables = {name: os.environ.pop(name, None) for name in (VARIABLE, FILE_VARIABLE)}
    close_connections(app)
    app._given_url = os.environ[VARIABLE] = database_url
    try:
        yield app
    finally:
        app._given_url = own_url
        del os.environ[VARIABLE]
        os.environ |= {name: value for name, value in variables.items() if value is not None}
        close_connections(app)


def close_connections(app: Faultline) -> None:
    """Of all event loops too: one that outlives a test would keep a pool to a dropped database."""
    app.close()
    for loop, pool in tuple(app._async_pools.items()):
        del app._async_pools[loop]
        if loop.is_closed():
            continue
        if loop is _running_loop():
            task = loop.create_task(pool.close())
            _closing.add(task)
            task.add_done_callback(_closing.discard)
        elif loop.is_running():
            asyncio.run_coroutine_threadsafe(pool.close(), loop).result(_CLOSE_SECONDS)
        elif _running_loop() is None:
            loop.run_until_complete(pool.close())


async def close_pool_here(app: Faultline) -> None:
    """Of an event loop that is about to end: a pool that nobody closes may keep it from ending."""
    if pool := app._async_pools.pop(asyncio.get_running_loop(), None):
        await pool.close(_CLOSE_SECONDS)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
