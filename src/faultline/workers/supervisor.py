"""Starts several worker processes, replaces those that die, stops them together."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from faultline.events import Event, emit
from faultline.health import health_file
from faultline.health.health_file import ChildStatus, Report
from faultline.health.writer import EVERY_SECONDS, write_first
from faultline.postgres.reconnecting import Backoff
from faultline.steady import steady_now

# Exit codes of a worker that an operator drained. The supervisor does not start it again.
DRAINED = 80
DRAINED_STUCK = 81  # drained, but a handler could not be ended
MISCONFIGURED = 2  # wrong options, or an application without tasks: a restart would not help

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_LOOK_SECONDS = 0.2
_HEALTHY_SECONDS = 10.0


class Slot:
    """One supervised process, and after its death the process that replaces it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.child: subprocess.Popen[bytes] | None = None
        self.is_drained = False
        self.since = self.retry_at = steady_now()
        self.backoff = Backoff(shortest=0.2, longest=30.0)

    @property
    def is_running(self) -> bool:
        return self.child is not None and self.child.poll() is None

    def described(self, file: str) -> ChildStatus:
        state = "drained" if self.is_drained else "running" if self.is_running else "waiting"
        pid = None if self.child is None else self.child.pid
        return ChildStatus(self.number + 1, pid, state, self.since, file)


class Supervisor:
    """Runs `command` in `count` processes until SIGTERM, SIGINT or a drain of all.

    The supervisor passes each signal on, so that every worker drains by itself. Each process has one of
    `count` slots; `options` returns the options of the process in a slot, and `on_end` is called when it
    has ended. Each process reads from a pipe that closes when the supervisor ends, and then stops too.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        count: int,
        options: Callable[[int], Sequence[str]] = lambda slot: (),
        on_end: Callable[[int], None] = lambda slot: None,
        health: SupervisorHealth | None = None,
    ) -> None:
        self._command = list(command)
        self._options = options
        self._on_end = on_end
        self._health = health
        self._slots = [Slot(number) for number in range(count)]
        self._exit_code = 0
        # a plain flag: a signal may arrive while the lock of an Event is held
        self._stopping = False
        self._read_end, self._write_end = os.pipe()

    def run(self) -> int:
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)
        try:
            while not self._is_stopping() and not all(slot.is_drained for slot in self._slots):
                for slot in self._slots:
                    self._keep_alive(slot)
                self._report()
                time.sleep(_LOOK_SECONDS)
            while any(slot.is_running for slot in self._slots):
                self._report()
                time.sleep(_LOOK_SECONDS)
        finally:
            if self._health is not None:
                self._health.close()
            os.close(self._read_end)
            os.close(self._write_end)
            for number in _SIGNALS:  # no process is left to pass a signal on to
                signal.signal(number, signal.SIG_IGN)
        codes = [slot.child.returncode for slot in self._slots if slot.child is not None]
        return max([self._exit_code, *map(exit_code_of, codes)])

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stop()

    def _stop(self) -> None:
        self._stopping = True
        for slot in self._slots:
            if slot.child is not None and slot.is_running:
                slot.child.send_signal(signal.SIGTERM)

    def _is_stopping(self) -> bool:
        return self._stopping

    def _report(self) -> None:
        if self._health is not None:
            files = [self._health.file_of(slot.number).name for slot in self._slots]
            self._health.note(
                [slot.described(file) for slot, file in zip(self._slots, files, strict=True)]
            )

    def _keep_alive(self, slot: Slot) -> None:
        now = steady_now()
        if slot.is_running:
            if now - slot.since > _HEALTHY_SECONDS:
                slot.backoff.reset()
            return
        if slot.child is not None:
            self._ended(slot, slot.child)
        if not slot.is_drained and now >= slot.retry_at and not self._stopping:
            self._start(slot)

    def _ended(self, slot: Slot, child: subprocess.Popen[bytes]) -> None:
        slot.child, slot.since = None, steady_now()
        self._on_end(slot.number)
        if self._health is not None:
            self._health.forget(slot.number)
        if child.returncode in (DRAINED, DRAINED_STUCK):
            slot.is_drained = True
            self._exit_code = max(self._exit_code, exit_code_of(child.returncode))
            emit(Event.PROCESS_DRAINED, pid=child.pid, exit_code=exit_code_of(child.returncode))
            return
        if child.returncode == MISCONFIGURED:
            self._exit_code = MISCONFIGURED
            self._stop()
            return
        pause = slot.backoff.next_pause()
        slot.retry_at = slot.since + pause
        emit(
            Event.PROCESS_RESTARTED,
            pid=child.pid,
            exit_code=child.returncode,
            restart_in_seconds=round(pause, 2),
        )

    def _start(self, slot: Slot) -> None:
        command = [
            *self._command,
            *self._options(slot.number),
            "--supervised-by",
            str(self._read_end),
        ]
        # A process group of its own: Ctrl-C in the terminal reaches only the supervisor, which passes it on
        # once.
        slot.child = subprocess.Popen(command, start_new_session=True, pass_fds=(self._read_end,))
        slot.since = steady_now()
        if self._is_stopping():  # the signal arrived while the process was starting
            with contextlib.suppress(ProcessLookupError):
                slot.child.send_signal(signal.SIGTERM)


def exit_code_of(code: int) -> int:
    """The supervisor's exit code for this exit code of a worker.

    Death by SIGTERM counts as success: the worker got the signal before its handler was installed.
    """
    if code in (-signal.SIGTERM, DRAINED):
        return 0
    return 1 if code == DRAINED_STUCK else abs(code)


class SupervisorHealth:
    """The supervisor's health file, written by its loop: it ages if the loop stops."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._started_at = self._written_at = steady_now()
        self._children: tuple[ChildStatus, ...] = ()
        write_first(path, self._report())

    def file_of(self, slot: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{slot + 1}")

    def note(self, children: Sequence[ChildStatus]) -> None:
        """Write the file if a child has changed or the last report is old."""
        now = steady_now()
        if tuple(children) == self._children and now - self._written_at < EVERY_SECONDS:
            return
        self._children, self._written_at = tuple(children), now
        with contextlib.suppress(OSError):  # a full disk must not end the supervisor
            health_file.write(self._path, self._report())

    def forget(self, slot: int) -> None:
        """Remove the report of a process that has ended."""
        health_file.remove(self.file_of(slot))

    def close(self) -> None:
        for child in self._children:
            health_file.remove(self._path.with_name(child.file))
        health_file.remove(self._path)

    def _report(self) -> Report:
        return Report(
            "supervisor",
            os.getpid(),
            self._started_at,
            self._written_at,
            loop_turned_at=None,
            vitals=None,
            children=self._children,
        )
