"""The threads, child processes and connection pools that handlers use."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from faultline.hooks import Hooks
from faultline.postgres.sessions import AsyncPool, Pool, ServerAddress, make_async_pool, make_pool
from faultline.workers.children import Children

_NAME = "faultline handler"
_CLOSE_SECONDS = 1.0  # for each pool's threads or tasks, which may be connecting
_PER_SLOT = 2  # a handler may open fenced() inside transaction()


class HandlerResources:
    """Sized for the worker's slots; opened when a handler first needs them."""

    def __init__(self, url: str, *, concurrency: int, hooks: Hooks | None = None) -> None:
        self._url = url
        self._concurrency = concurrency
        self.is_closing = False  # the worker is about to cancel the running tasks
        self._opening = threading.Lock()
        self._pool: Pool | None = None
        self.children = Children(url, hooks)
        self.threads = ThreadPoolExecutor(concurrency, thread_name_prefix="faultline-handler")
        self.async_pool: AsyncPool = make_async_pool(
            url, max_size=_PER_SLOT * concurrency, application_name=_NAME
        )

    async def open(self) -> None:
        await self.async_pool.open()

    def pool(self) -> Pool:
        """The pool for plain handlers; called in their threads."""
        with self._opening:
            if self._pool is None:
                self._pool = make_pool(
                    self._url,
                    max_size=_PER_SLOT * self._concurrency,
                    application_name=_NAME,
                )
                self._pool.open()
            return self._pool

    async def leave(self, server: ServerAddress) -> None:
        """Stop using the sessions opened so far: the worker has left that server.

        Child processes close theirs too.
        """
        self.children.leave(server)
        await self.async_pool.distrust()
        if self._pool is not None:
            await asyncio.to_thread(self._pool.distrust)

    async def close(self) -> None:
        await self.async_pool.close(_CLOSE_SECONDS)
        if self._pool is not None:
            self._pool.close(_CLOSE_SECONDS)
        self.children.close()
        self.threads.shutdown(wait=False)
