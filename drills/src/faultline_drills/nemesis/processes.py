"""The processes that a nemesis kills and stops; killed ones are replaced."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Sequence

from faultline_drills.context import DrillContext
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.processes.process_group import ProcessGroup

_KEPT_EVENTS = 200  # per process; the history has all of them
_FINDING_LENGTH = 2_000


class NemesisProcesses:
    """Workers and reconcilers; every second worker runs without self-fencing.

    The workers without it go on when they are late, so that PostgreSQL has to refuse their commits.
    """

    def __init__(
        self, drill: DrillContext, networks: Sequence[str], *, workers: int, reconcilers: int
    ) -> None:
        self._drill = drill
        self._networks = itertools.cycle(networks)
        self._numbers = itertools.count(1)
        self._workers = ProcessGroup([self._start_worker] * workers, on_end=self._require_kill)
        self._reconcilers = ProcessGroup(
            [self._start_reconciler] * reconcilers, on_end=self._require_kill
        )

    @property
    def running(self) -> list[ObservedProcess]:
        """The processes that have neither ended nor been stopped."""
        return [*self._workers.running, *self._reconcilers.running]

    @property
    def running_workers(self) -> list[ObservedProcess]:
        return self._workers.running

    @property
    def replaced(self) -> int:
        return self._workers.replaced + self._reconcilers.replaced

    def replace_ended(self) -> None:
        """Replace ended processes, and drop old output of the others."""
        for group in (self._workers, self._reconcilers):
            group.replace_ended()
            for process in group.members:
                process.forget_old_output(_KEPT_EVENTS)

    def _require_kill(self, process: ObservedProcess) -> None:
        """Record a finding if anything but SIGKILL has ended the process."""
        ended = f"{process.name} ended by itself with {process.exit_code};"
        finding = f"{ended} {process.recent_output()}"[:_FINDING_LENGTH]
        self._drill.expect(process.exit_code == -signal.SIGKILL, finding)
        process.end()
        process.forget_old_output(0)
        self._drill.workers.remove(process)

    def _start_worker(self) -> ObservedProcess:
        number = next(self._numbers)
        options = () if number % 2 else ("--no-self-fencing",)
        return self._drill.worker(*options, name=f"worker-{number}", url=next(self._networks))

    def _start_reconciler(self) -> ObservedProcess:
        name = f"reconciler-{next(self._numbers)}"
        return self._drill.worker(name=name, url=next(self._networks), command="reconciler")
