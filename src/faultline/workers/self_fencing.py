"""Ends attempts shortly before their leases run out, by the worker's own clock.

A query on a dead connection may take minutes to fail, so nothing here waits for the database. The fence
in the database protects the data. Self-fencing keeps a cut-off worker from wasting work, and from effects
outside of the database.
"""

from __future__ import annotations

import threading

from faultline.steady import steady_now
from faultline.workers.leases import HeldLeases


class SelfFencing:
    def __init__(self, book: HeldLeases, *, margin_seconds: float, shortest_lease: float) -> None:
        self._book = book
        self._margin = margin_seconds
        # No lease can be due sooner than this after its claim, so none is missed between two looks.
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
            for lease in self._book:
                if lease.deadline <= limit:
                    lease.lose("deadline")
