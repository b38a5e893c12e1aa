"""A crowd: many callers who do something at the same moment, each in a session of its own."""

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
    """Gathered once, for as often as it is needed: new connections per storm would slow down all else."""

    def __init__(self, url: str, size: int, stack: ExitStack, *, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._threads = stack.enter_context(ThreadPoolExecutor(size))
        self._connections: list[Connection] = []
        for _ in range(size):
            conn = connect(url, application_name="faultline drill crowd")
            stack.callback(conn.close)
            self._connections.append(conn)

    def __len__(self) -> int:
        return len(self._connections)

    def run_together(self, acts: Sequence[Callable[[Connection], T]]) -> list[T]:
        """One act for each of them, begun together; what they return, in their order.

        What one of them raises is raised here, after all have ended.
        """
        gate = threading.Barrier(len(self), timeout=self._timeout_seconds)

        def call(act: Callable[[Connection], T], conn: Connection) -> T:
            gate.wait()
            return act(conn)

        pairs = zip(acts, self._connections, strict=True)
        calls = [self._threads.submit(call, act, conn) for act, conn in pairs]
        wait(calls)
        return [each.result() for each in calls]


def run_concurrently(drill: DrillContext, acts: Sequence[Callable[[Connection], T]]) -> list[T]:
    """By a crowd that gathers for this and goes."""
    with ExitStack() as stack:
        limit = drill.settings.timeout_seconds
        return ConcurrentSessions(drill.url, len(acts), stack, timeout_seconds=limit).run_together(
            acts
        )
