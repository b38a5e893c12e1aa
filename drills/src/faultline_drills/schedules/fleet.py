"""Scheduler processes without a leader, which all fire the same schedules."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

from faultline.postgres.sessions import run
from faultline.schedules import make_schedule
from faultline.statements import schedules
from faultline_drills.context import DrillContext
from faultline_drills.workload.tasks import note

_KILL_SECONDS = 60.0


class SchedulerFleet:
    """Schedulers are numbered from 1 in the order of their start."""

    def __init__(self, drill: DrillContext) -> None:
        self._drill = drill
        self._processes: list[subprocess.Popen[bytes]] = []
        drill.stack.callback(self.end)

    def start(self, count: int = 1, *, url: str | None = None) -> None:
        for _ in range(count):
            command = [sys.executable, "-m", "faultline_drills.clients.bare_scheduler"]
            self._processes.append(subprocess.Popen([*command, url or self._drill.url]))

    def kill(self, number: int) -> None:
        """Kill a scheduler, and start another one."""
        process = self._processes[number - 1]
        process.kill()
        process.wait(_KILL_SECONDS)
        self._drill.inject("kill", f"scheduler-{number}")
        self.start()

    def stop(self, number: int) -> None:
        self._processes[number - 1].send_signal(signal.SIGSTOP)
        self._drill.inject("pause", f"scheduler-{number}")

    def resume(self, number: int) -> None:
        self._processes[number - 1].send_signal(signal.SIGCONT)

    def expect_alive(self) -> None:
        """Expect that only the drill has ended schedulers."""
        ended = [each.returncode for each in self._processes if each.poll() is not None]
        others = [code for code in ended if code != -signal.SIGKILL]
        self._drill.expect(not others, f"schedulers ended by themselves: {others}")

    def end(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait(_KILL_SECONDS)


def put_schedule(
    drill: DrillContext, number: int, cron: str | None = None, *, priority: int = 5, **timing: Any
) -> None:
    """Add or replace `schedule-NUMBER`, whose job has that number."""
    job = note.options(priority=priority).job(number=number)
    schedule = make_schedule(job, cron, name=f"schedule-{number}", **timing)
    run(drill.conn, schedules.add(schedule.definition, replace=True))
