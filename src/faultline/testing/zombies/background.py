"""A coroutine on an event loop and in a thread of its own, which can be left alone, or ended."""

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


class Background:
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
        # A worker that is torn down in the middle of its work has a lot to complain about.
        self.loop.set_exception_handler(lambda loop, context: None)
        self._ready.set()
        await self._work()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def join(self, timeout_seconds: float) -> bool:
        """Whether it has ended by then."""
        self._thread.join(timeout_seconds)
        return self.is_over

    def end(self, timeout_seconds: float) -> bool:
        """Cancel it, whatever it is doing; again and again, since a coroutine may let one pass."""
        give_up_at = time.monotonic() + timeout_seconds
        with connections_left_open():
            while not self.is_over and time.monotonic() < give_up_at:
                if self.loop is not None:
                    with contextlib.suppress(RuntimeError):  # its loop is closed: it has ended
                        self.loop.call_soon_threadsafe(self._cancel_all)
                self._thread.join(_CANCEL_SECONDS)
        return self.is_over

    def _cancel_all(self) -> None:
        """What it has started as well: an attempt whose handler was cancelled goes on saying so to a
        database that it cannot reach, for as long as its lease lasts."""
        for task in asyncio.all_tasks(self.loop):
            task.cancel()


@contextlib.contextmanager
def connections_left_open() -> Iterator[None]:
    """Ignore warnings about connections of a worker that was killed, ours and the driver's own."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", r"<(psycopg|faultline)\..* was deleted while still open", ResourceWarning
        )
        yield
