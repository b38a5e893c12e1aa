"""A crowd that stays for the whole campaign: fifty new connections per storm would slow down all else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TypeVar

from faultline.database import Connection, connect

CROWD_SIZE = 50
_GATHERING_SECONDS = 30.0

T = TypeVar("T")


class StandingCrowd:
    """Holds one connection per client; `at_once` lets all of them ask for the same thing together."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self._threads = stack.enter_context(ThreadPoolExecutor(CROWD_SIZE))
        self._connections: list[Connection] = []
        for _ in range(CROWD_SIZE):
            conn = connect(url, application_name="faultline drill crowd")
            stack.callback(conn.close)
            self._connections.append(conn)

    def at_once(self, ask: Callable[[Connection], T]) -> list[T]:
        """What each was answered."""
        gate = threading.Barrier(CROWD_SIZE, timeout=_GATHERING_SECONDS)

        def one(conn: Connection) -> T:
            gate.wait()
            return ask(conn)

        return list(self._threads.map(one, self._connections))
