"""Coroutines that run beside the attempts, such as outcome writes and releases."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from faultline.workers.wakeup import Wakeup


class BackgroundTasks:
    """Keeps each task until it ends, and wakes the claim loop then."""

    def __init__(self, wakeup: Wakeup) -> None:
        self._wakeup = wakeup
        self.pending: set[asyncio.Task[None]] = set()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self.pending.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.pending.discard(task)
        self._wakeup.set()
        report_error(task)


def report_error(task: asyncio.Task[None]) -> None:
    """Give an error that no code expects to the loop's exception handler."""
    if not task.cancelled() and (error := task.exception()) is not None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": "an attempt ended in an error of the worker's own", "exception": error}
        )
