"""Strikes again and again, in an order and at moments that one seed decides."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence

import psycopg

from faultline.errors import DatabaseUnavailable
from faultline_drills.nemesis.battlefield import Battlefield
from faultline_drills.nemesis.faults import Fault


def drawn(faults: Sequence[Fault], dice: random.Random) -> Iterator[Fault]:
    """Each once, in an order of the seed's, so that none is missing; then by weight, without end."""
    yield from dice.sample(faults, len(faults))
    weights = [fault.weight for fault in faults]
    while True:
        yield from dice.choices(faults, weights)


class Nemesis:
    """Works in a thread of its own, one blow after the other, until it is told to end."""

    def __init__(
        self, field: Battlefield, faults: Sequence[Fault], *, longest_pause_seconds: float
    ) -> None:
        self._field = field
        self._faults = list(faults)
        self._longest_pause = longest_pause_seconds
        self._thread = threading.Thread(target=self._run, name="nemesis", daemon=True)
        self.failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def end(self, timeout_seconds: float = 60.0) -> None:
        """What it did last has been healed by then."""
        self._field.ending.set()
        self._thread.join(timeout_seconds)
        for network in self._field.networks:
            network.flow()

    def _run(self) -> None:
        field = self._field
        try:
            for fault in drawn(self._faults, field.dice):
                if field.ending.wait(field.dice.uniform(0.1, 1) * self._longest_pause):
                    return
                try:
                    fault.strike(field)
                except (psycopg.OperationalError, DatabaseUnavailable):
                    continue  # the last blow is still felt, and this one did not land
        except BaseException as error:
            self.failure = error
