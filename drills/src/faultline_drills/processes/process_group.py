"""Processes that are replaced when they end, as by an orchestrator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from faultline_drills.context import DrillContext, DrillNotRun
from faultline_drills.processes.observed_process import ObservedProcess

_OUTPUT_SECONDS = 10.0  # for the last output of an ended process to be read


class ProcessGroup:
    """Starts one process per starter, and another one whenever it has ended.

    `on_end` gets each ended process first, after all of its output was read; it may raise.
    """

    def __init__(
        self,
        starters: Sequence[Callable[[], ObservedProcess]],
        *,
        on_end: Callable[[ObservedProcess], None],
    ) -> None:
        self._starters = tuple(starters)
        self._on_end = on_end
        self.members = [start() for start in self._starters]
        self.replaced = 0

    @property
    def running(self) -> list[ObservedProcess]:
        """The members that have neither ended nor been stopped."""
        return [each for each in self.members if each.is_alive and not each.is_stopped]

    def replace_ended(self) -> None:
        for position, process in enumerate(self.members):
            if not process.is_alive:
                process.wait(_OUTPUT_SECONDS)
                self._on_end(process)
                self.members[position] = self._starters[position]()
                self.replaced += 1


class CrashingWorkers:
    """Workers that one kind of fault ends repeatedly; any other end fails the drill.

    `fault` is the fault's kind, and `exit_code` the exit code that it leads to.
    """

    def __init__(
        self, drill: DrillContext, *options: str, fault: str, exit_code: int, **given: Any
    ) -> None:
        def start() -> ObservedProcess:
            return drill.worker(*options, **given)

        self._drill = drill
        self._fault = fault
        self._exit_code = exit_code
        self._group = ProcessGroup([start] * drill.settings.workers, on_end=self._record_fault)

    def run_until(self, condition: Callable[[], bool], what: str) -> None:
        """Replace ended workers until `condition` holds."""

        def replaced_and_reached() -> bool:
            self._group.replace_ended()
            return condition()

        self._drill.wait_until(replaced_and_reached, what)

    def run_to_the_end(self) -> None:
        """Replace ended workers until every job has ended."""
        self.run_until(lambda: self._drill.unfinished() == 0, "the end of all jobs")

    def _record_fault(self, worker: ObservedProcess) -> None:
        if worker.exit_code != self._exit_code:
            raise DrillNotRun(f"a worker ended unexpectedly; {worker.recent_output()}")
        self._drill.inject(self._fault, worker.name)
