"""Self-fencing: ends attempts before their leases run out, judged by a local clock alone.

A query on a dead connection may take minutes to say so, so nothing here waits for the database. The
fence in the database is what protects; this only keeps a cut-off worker from wasting work, and from
outside effects it no longer has the right to.
"""

from __future__ import annotations

import threading

from faultline.steady import steady_now
from faultline.workers.leases import LeaseBook


class SelfFencing:
    def __init__(self, book: LeaseBook, *, margin_seconds: float, shortest_lease: float) -> None:
        self._book = book
        self._margin = margin_seconds
        # No lease can come due sooner than this after it was taken, so none is missed between looks.
        self._look_seconds = shortest_lease / 20
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faultline-sentinel", daemon=True)

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
