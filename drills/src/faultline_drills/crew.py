"""A crew: worker processes that are replaced as they die, as an orchestrator would replace them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from faultline_drills.arena import Arena, DrillNotRun
from faultline_drills.witness import Witness


class Crew:
    """`fault` is what ends them, in one word; `exit_code` is how that shows."""

    def __init__(
        self, arena: Arena, *options: str, fault: str, exit_code: int, **given: Any
    ) -> None:
        self._arena = arena
        self._options = options
        self._given = given
        self._fault = fault
        self._exit_code = exit_code
        self.members: list[Witness] = [self._hire() for _ in range(arena.settings.workers)]

    def work_until(self, condition: Callable[[], bool], what: str) -> None:
        """Replace whoever dies, until then."""

        def look() -> bool:
            self._replace_the_dead()
            return condition()

        self._arena.wait_until(look, what)

    def work_to_the_end(self) -> None:
        """Until every job has ended."""
        self.work_until(lambda: self._arena.unfinished() == 0, "the end of all jobs")

    def _hire(self) -> Witness:
        return self._arena.worker(*self._options, **self._given)

    def _replace_the_dead(self) -> None:
        for position, worker in enumerate(self.members):
            if worker.is_alive:
                continue
            if worker.process.returncode != self._exit_code:
                raise DrillNotRun(f"a worker ended in its own way; {worker.last_words()}")
            self._arena.inject(self._fault, worker.name)
            self.members[position] = self._hire()
