"""Connects an application to a test's database for the length of a block."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from faultline.app import Faultline
from faultline.postgres.url import FILE_VARIABLE, VARIABLE
from faultline.task import Task

_CLOSE_SECONDS = 10.0
_closing: set[asyncio.Task[Any]] = set()  # an event loop keeps only weak references to its tasks


@contextlib.contextmanager
def using(app: Faultline, database_url: str) -> Iterator[Faultline]:
    """Within the block, `app` and DATABASE_URL use `database_url`.

    This also overrides a URL that the application was constructed with. The application's open connections
    are closed when the block begins and when it ends.
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
    """Close the application's pools of all event loops.

    A loop that outlives a test would otherwise keep a pool to a dropped database.
    """
    app.close()
    for loop, pool in tuple(app.producer.async_pools.items()):
        del app.producer.async_pools[loop]
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


async def close_pool_of_running_loop(app: Faultline) -> None:
    """Close the running event loop's pool, which could keep the loop from ending."""
    if pool := app.producer.async_pools.pop(asyncio.get_running_loop(), None):
        await pool.close(_CLOSE_SECONDS)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


Handler = Callable[..., Any]


Wrap = Callable[[Task[Any, Any]], Handler]


def instrumented_copy(
    app: Faultline, wrap: Wrap, *, options: Mapping[str, Any] | None = None
) -> Faultline:
    """Return a copy of `app` with wrapped handlers; `options` replace their settings."""
    app.import_tasks()
    copy = Faultline(app.database_url, prepare_transaction=app.prepare_transaction)
    copy.hooks, copy.state, copy.session_makers = app.hooks, app.state, app.session_makers
    for task in app.tasks.values():
        settings = replace(task.settings, **(options or {}))
        handler = functools.wraps(task.handler)(wrap(task))
        copied = copy._register(handler, task.name, settings)
        copied._codec = task._codec  # it may know classes of the function that defined the handler
    return copy
