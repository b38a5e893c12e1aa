"""A crowd: many callers who do the same thing at the same moment, each in a session of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from faultline.database import Connection, connect
from faultline.drills.arena import Arena

T = TypeVar("T")


def all_at_once(arena: Arena, acts: Sequence[Callable[[Connection], T]]) -> list[T]:
    """Call each with a connection once all have theirs; what they return, in their order.

    What one of them raises is raised here, after all have ended.
    """
    gate = threading.Barrier(len(acts), timeout=arena.settings.timeout_seconds)

    def call(act: Callable[[Connection], T]) -> T:
        with connect(arena.url, application_name="faultline drill crowd") as conn:
            gate.wait()
            return act(conn)

    with ThreadPoolExecutor(len(acts)) as pool:
        return [future.result() for future in [pool.submit(call, act) for act in acts]]
