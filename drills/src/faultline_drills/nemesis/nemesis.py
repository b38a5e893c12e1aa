"""Injects one fault after the other; one seed decides their order and timing."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence

import psycopg

from faultline.errors import DatabaseUnavailable
from faultline_drills.nemesis.faults import NemesisFault
from faultline_drills.nemesis.targets import FaultTargets


def draw_faults(faults: Sequence[NemesisFault], draw: random.Random) -> Iterator[NemesisFault]:
    """Each fault once, in random order; then by weight, without end."""
    yield from draw.sample(faults, len(faults))
    weights = [fault.weight for fault in faults]
    while True:
        yield from draw.choices(faults, weights)


class Nemesis:
    """Injects faults in a thread of its own, one at a time, until `end`."""

    def __init__(
        self, targets: FaultTargets, faults: Sequence[NemesisFault], *, longest_pause_seconds: float
    ) -> None:
        self._targets = targets
        self._faults = list(faults)
        self._longest_pause = longest_pause_seconds
        self._thread = threading.Thread(target=self._run, name="nemesis", daemon=True)
        self.failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def end(self, timeout_seconds: float = 60.0) -> None:
        """Wait until the last fault is undone, and clear all networks."""
        self._targets.ending.set()
        self._thread.join(timeout_seconds)
        for network in self._targets.networks:
            network.clear_faults()

    def _run(self) -> None:
        targets = self._targets
        try:
            for fault in draw_faults(self._faults, targets.rng):
                if targets.ending.wait(targets.rng.uniform(0.1, 1) * self._longest_pause):
                    return
                try:
                    fault.inject(targets)
                except (psycopg.OperationalError, DatabaseUnavailable):
                    continue  # the database is still down from the last fault; this one is skipped
        except BaseException as error:
            self.failure = error
