"""Patches `Connection.wait`, through which psycopg sends everything.

This covers the connections of `job.transaction()`, the user's own and those of libraries on top of psycopg,
if the handler, its asyncio tasks or its asyncio threads use them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from faultline.postgres.driver import AsyncConnection, Connection
from faultline.testing.zombies.monitor import break_connection, current_monitor

# Event loops of workers that were killed or disconnected: the worker's own sessions fail as well.
_disconnected: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
_patch_lock = threading.Lock()
_log = logging.getLogger("psycopg")


def disconnect_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Let every later database call on this event loop fail."""
    _disconnected.add(loop)


@contextlib.contextmanager
def patched_driver() -> Iterator[None]:
    """Report every call of an instrumented handler to its monitor."""
    with _patch_lock:
        wait_sync_original, wait_async_original = (
            Connection.wait,
            AsyncConnection.wait,
        )

        def wait(self: Any, gen: Any, *args: Any, **kwargs: Any) -> Any:
            monitor = current_monitor.get()
            if monitor is None:
                return wait_sync_original(self, gen, *args, **kwargs)
            point = monitor.before_call(self, gen)
            result = wait_sync_original(self, gen, *args, **kwargs)
            if point is not None:
                monitor.after_call(self, point)
            return result

        async def wait_async(self: Any, gen: Any, *args: Any, **kwargs: Any) -> Any:
            monitor = current_monitor.get()
            if monitor is None:
                if asyncio.get_running_loop() in _disconnected:
                    break_connection(self)
                return await wait_async_original(self, gen, *args, **kwargs)
            point = monitor.before_call(self, gen)
            result = await wait_async_original(self, gen, *args, **kwargs)
            if point is not None:
                monitor.after_call(self, point)
            return result

        level = _log.level
        _log.setLevel(logging.CRITICAL)  # psycopg would log every broken session
        Connection.wait = wait  # type: ignore[method-assign]
        AsyncConnection.wait = wait_async  # type: ignore[method-assign]
        try:
            yield
        finally:
            Connection.wait = wait_sync_original  # type: ignore[method-assign]
            AsyncConnection.wait = wait_async_original  # type: ignore[method-assign]
            _log.setLevel(level)
