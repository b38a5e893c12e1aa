"""Runs the roles of a peer as processes, and ends their process groups."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_LAST_LINES = 12
_POLL_SECONDS = 0.05
_END_SECONDS = 10.0


class PeerFailed(Exception):
    """A peer did not fulfil its role; the run continues without this sample."""


@dataclass(frozen=True)
class Program:
    """The command and environment of a peer's program."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


class Deadline:
    """One time limit for all waits of a trial."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._at = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return max(0.0, self._at - time.monotonic())


class RoleProcess:
    """A process; parses the JSON objects on its stdout, and keeps its other output."""

    def __init__(self, program: Program, role: Sequence[str], url: str) -> None:
        self.name = role[0]
        self.heard: list[dict[str, Any]] = []
        self._other_lines: list[str] = []
        self._changed = threading.Condition()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end()
        self.process = subprocess.Popen(
            [*program.command, *role],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, **program.environment, "BENCH_URL": url},
            start_new_session=True,  # its children are in its process group and end with it
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> RoleProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def wait_for(self, enough: Callable[[list[dict[str, Any]]], bool], deadline: Deadline) -> None:
        """Wait until `enough` accepts the output; raise if the process ends before."""
        with self._changed:
            while not enough(self.heard):
                if not self._reader.is_alive():
                    raise PeerFailed(f"{self.name} ended early: {self.last_output()}")
                if not deadline.left:
                    raise PeerFailed(
                        f"{self.name} did not print enough in time: {self.last_output()}"
                    )
                self._changed.wait(min(_POLL_SECONDS, deadline.left))

    def require_alive(self) -> None:
        if not self._reader.is_alive():  # its stdout is closed: it ends, or has ended
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_END_SECONDS)
        if self.process.poll() is not None:
            raise PeerFailed(f"{self.name} ended early: {self.last_output()}")

    def result(self, deadline: Deadline) -> dict[str, Any]:
        """Wait for the process's end; return its JSON output merged into one object."""
        try:
            code = self.process.wait(deadline.left)
        except subprocess.TimeoutExpired:
            raise PeerFailed(f"{self.name} took longer than {deadline.seconds:g} s") from None
        self._reader.join(10)
        if code != 0:
            raise PeerFailed(f"{self.name} ended with {code}: {self.last_output()}")
        return {key: value for line in self.heard for key, value in line.items()}

    def end(self, grace_seconds: float = 5.0) -> bool:
        """Send SIGTERM, then SIGKILL to the group; return whether SIGTERM sufficed."""
        if self._errors.closed:
            return True
        self._signal_group(signal.SIGTERM)
        try:
            self.process.wait(grace_seconds)
            ended_on_sigterm = True
        except subprocess.TimeoutExpired:
            ended_on_sigterm = False
        self._signal_group(signal.SIGKILL)  # also ends children that outlived their parent
        self.process.wait(10)
        self._reader.join(10)
        assert self.process.stdout is not None  # noqa: S101 - stdout=PIPE
        self.process.stdout.close()
        self._errors.close()
        return ended_on_sigterm

    def last_output(self) -> str:
        if self._errors.closed:
            return "(ended)"
        self._errors.seek(0)
        output = self._errors.read().decode(errors="replace").splitlines()
        lines = [line for line in [*self._other_lines, *output] if line.strip()]
        return " / ".join(line.strip() for line in lines[-_LAST_LINES:]) or "it printed nothing"

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def _read(self) -> None:
        assert self.process.stdout is not None  # noqa: S101 - stdout=PIPE
        for line in self.process.stdout:
            heard = _as_object(line)
            with self._changed:
                if heard is None:
                    self._other_lines.append(line)
                else:
                    self.heard.append(heard)
                self._changed.notify_all()


def call(program: Program, role: Sequence[str], url: str, deadline: Deadline) -> dict[str, Any]:
    """Run a role to its end."""
    with RoleProcess(program, role, url) as process:
        return process.result(deadline)


def _as_object(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
