"""Sessions that run their statements at the same moment, each in its own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import TypeVar

from faultline.postgres.sessions import Connection, connect
from faultline_drills.context import DrillContext

T = TypeVar("T")


class ConcurrentSessions:
    """Opened once and reused, since many new connections slow down everything else."""

    def __init__(self, url: str, size: int, stack: ExitStack, *, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._threads = stack.enter_context(ThreadPoolExecutor(size))
        self._connections: list[Connection] = []
        for _ in range(size):
            conn = connect(url, application_name="faultline drill session")
            stack.callback(conn.close)
            self._connections.append(conn)

    def __len__(self) -> int:
        return len(self._connections)

    def run_together(self, acts: Sequence[Callable[[Connection], T]]) -> list[T]:
        """Run one act per session, all started together; their results, in order.

        An error of one act is raised after all have ended.
        """
        barrier = threading.Barrier(len(self), timeout=self._timeout_seconds)

        def call(act: Callable[[Connection], T], conn: Connection) -> T:
            barrier.wait()
            return act(conn)

        pairs = zip(acts, self._connections, strict=True)
        calls = [self._threads.submit(call, act, conn) for act, conn in pairs]
        wait(calls)
        return [each.result() for each in calls]


def run_concurrently(drill: DrillContext, acts: Sequence[Callable[[Connection], T]]) -> list[T]:
    """Run the acts together on new sessions, which are closed afterwards."""
    with ExitStack() as stack:
        limit = drill.settings.timeout_seconds
        return ConcurrentSessions(drill.url, len(acts), stack, timeout_seconds=limit).run_together(
            acts
        )
