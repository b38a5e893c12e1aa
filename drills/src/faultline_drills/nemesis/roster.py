"""The processes of a long run: as many of each as there should be, whoever dies."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Sequence

from faultline_drills.arena import Arena
from faultline_drills.witness import Witness

_REMEMBERED_EVENTS = 200  # of each process; the history has the rest
_LAST_WORDS_LENGTH = 2_000


class Roster:
    """Every second worker fences itself; the others carry on when they are late, and meet the fence."""

    def __init__(
        self, arena: Arena, networks: Sequence[str], *, workers: int, reconcilers: int
    ) -> None:
        self._arena = arena
        self._networks = itertools.cycle(networks)
        self._numbers = itertools.count(1)
        self.replaced = 0
        self._workers = [self._hire_worker() for _ in range(workers)]
        self._reconcilers = [self._hire_reconciler() for _ in range(reconcilers)]

    @property
    def living(self) -> list[Witness]:
        """Those that can be struck."""
        return [
            each
            for each in (*self._workers, *self._reconcilers)
            if each.is_alive and not each.is_stopped
        ]

    @property
    def living_workers(self) -> list[Witness]:
        return [each for each in self._workers if each.is_alive and not each.is_stopped]

    def tend(self) -> None:
        """Replace the dead; forget what the living said long ago."""
        for position, worker in enumerate(self._workers):
            if not worker.is_alive:
                self._bury(worker)
                self._workers[position] = self._hire_worker()
        for position, reconciler in enumerate(self._reconcilers):
            if not reconciler.is_alive:
                self._bury(reconciler)
                self._reconcilers[position] = self._hire_reconciler()
        for each in (*self._workers, *self._reconcilers):
            del each.records[:-_REMEMBERED_EVENTS]
            del each.events[:-_REMEMBERED_EVENTS]
            del each.stray_lines[:-_REMEMBERED_EVENTS]

    def _bury(self, witness: Witness) -> None:
        """Nothing but SIGKILL may end one: whatever else did is a finding."""
        code = witness.wait(10)
        self._arena.expect(
            code == -signal.SIGKILL,
            f"{witness.name} ended by itself with {code}; {witness.last_words()}"[
                :_LAST_WORDS_LENGTH
            ],
        )
        witness.end()
        witness.records.clear()
        witness.events.clear()
        self._arena.workers.remove(witness)
        self.replaced += 1

    def _hire_worker(self) -> Witness:
        number = next(self._numbers)
        options = () if number % 2 else ("--no-self-fencing",)
        return self._arena.worker(*options, name=f"worker-{number}", url=next(self._networks))

    def _hire_reconciler(self) -> Witness:
        name = f"reconciler-{next(self._numbers)}"
        return self._arena.worker(name=name, url=next(self._networks), command="reconciler")
