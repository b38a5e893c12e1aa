"""Ends attempts shortly before their leases run out, by the worker's own clock.

A query on a dead connection may take minutes to fail, so this thread never waits for the database. The data
is protected by the fence in the database. Self-fencing keeps an unreachable worker from wasting work, and
from effects outside of the database.
"""

from __future__ import annotations

import threading

from faultline.steady import steady_now
from faultline.workers.leases import HeldLeases


class SelfFencing:
    def __init__(
        self, held_leases: HeldLeases, *, margin_seconds: float, shortest_lease: float
    ) -> None:
        self._held_leases = held_leases
        self._margin = margin_seconds
        # Far shorter than any lease, so that none expires between two checks.
        self._look_seconds = shortest_lease / 20
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="faultline-self-fencing", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_seconds: float = 5.0) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while not self._stopping.wait(self._look_seconds):
            limit = steady_now() + self._margin
            for lease in self._held_leases:
                if lease.deadline <= limit:
                    lease.lose("deadline")
