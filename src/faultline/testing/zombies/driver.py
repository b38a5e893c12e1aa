"""Looks over the shoulder of the driver: everything that psycopg sends goes through one method.

Connections of every kind are seen, those of `job.transaction()`, the user's own and those of libraries
on top of psycopg, as long as they are used by the handler, its tasks or its threads of `asyncio`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import psycopg

from faultline.testing.zombies.watch import current, lose

# Event loops of workers that were killed or cut off: their own sessions are gone as well.
_unreachable: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
_only_one = threading.Lock()
_log = logging.getLogger("psycopg")


def cut_off(loop: asyncio.AbstractEventLoop) -> None:
    _unreachable.add(loop)


@contextlib.contextmanager
def watched_driver() -> Iterator[None]:
    with _only_one:
        plain, awaited = psycopg.Connection.wait, psycopg.AsyncConnection.wait

        def wait(self: Any, gen: Any, *args: Any, **kwargs: Any) -> Any:
            watch = current.get()
            if watch is None:
                return plain(self, gen, *args, **kwargs)
            point = watch.before_call(self, gen)
            answer = plain(self, gen, *args, **kwargs)
            if point is not None:
                watch.after_call(self, point)
            return answer

        async def wait_async(self: Any, gen: Any, *args: Any, **kwargs: Any) -> Any:
            watch = current.get()
            if watch is None:
                if asyncio.get_running_loop() in _unreachable:
                    lose(self)
                return await awaited(self, gen, *args, **kwargs)
            point = watch.before_call(self, gen)
            answer = await awaited(self, gen, *args, **kwargs)
            if point is not None:
                watch.after_call(self, point)
            return answer

        level = _log.level
        _log.setLevel(logging.CRITICAL)  # of every session that is cut it would say so
        psycopg.Connection.wait = wait  # type: ignore[method-assign]
        psycopg.AsyncConnection.wait = wait_async  # type: ignore[method-assign]
        try:
            yield
        finally:
            psycopg.Connection.wait = plain  # type: ignore[method-assign]
            psycopg.AsyncConnection.wait = awaited  # type: ignore[method-assign]
            _log.setLevel(level)
