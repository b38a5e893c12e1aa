"""Runs a coroutine on a new event loop in a new thread, and can cancel it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import warnings
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

_START_SECONDS = 30.0
_CANCEL_SECONDS = 0.5


class LoopThread:
    def __init__(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._work = work
        self._ready = threading.Event()
        self.error: BaseException | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="faultline-zombie", daemon=True)
        self._thread.start()
        self._ready.wait(_START_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except asyncio.CancelledError:
            return
        except BaseException as error:
            self.error = error
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        # A worker that is cancelled while it runs reports many errors that do not matter here.
        self.loop.set_exception_handler(lambda loop, context: None)
        self._ready.set()
        await self._work()

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the thread; return whether it has ended."""
        self._thread.join(timeout_seconds)
        return self.has_ended

    def end(self, timeout_seconds: float) -> bool:
        """Cancel all tasks until the thread ends: a coroutine may swallow a cancellation."""
        deadline = time.monotonic() + timeout_seconds
        with ignore_unclosed_connections():
            while not self.has_ended and time.monotonic() < deadline:
                if self.loop is not None:
                    with contextlib.suppress(
                        RuntimeError
                    ):  # the loop is closed: the thread has ended
                        self.loop.call_soon_threadsafe(self._cancel_all)
                self._thread.join(_CANCEL_SECONDS)
        return self.has_ended

    def _cancel_all(self) -> None:
        """Cancel every task of the loop, not only the main one.

        A cancelled attempt tries to record its outcome in the unreachable database until its lease ends.
        """
        for task in asyncio.all_tasks(self.loop):
            task.cancel()


@contextlib.contextmanager
def ignore_unclosed_connections() -> Iterator[None]:
    """Ignore the ResourceWarnings about open connections of a killed worker."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", r"<(psycopg|faultline)\..* was deleted while still open", ResourceWarning
        )
        yield
