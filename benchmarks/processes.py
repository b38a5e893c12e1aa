"""The roles of a peer as processes: started, listened to, and ended with all that they started."""

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


class PeerFailed(Exception):
    """A peer did not do what its role asks for; the run goes on without this sample."""


@dataclass(frozen=True)
class Program:
    """What runs a peer's roles."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


class Deadline:
    """One limit for everything that a trial waits for."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._at = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return max(0.0, self._at - time.monotonic())


class RoleProcess:
    """One process; the JSON objects on its stdout are heard, everything else it says is kept."""

    def __init__(self, program: Program, role: Sequence[str], url: str) -> None:
        self.name = role[0]
        self.heard: list[dict[str, Any]] = []
        self._other_lines: list[str] = []
        self._news = threading.Condition()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end()
        self.process = subprocess.Popen(
            [*program.command, *role],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, **program.environment, "BENCH_URL": url},
            start_new_session=True,  # whatever it starts is in its group, and ends with it
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> RoleProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def wait_for(self, enough: Callable[[list[dict[str, Any]]], bool], deadline: Deadline) -> None:
        """Until what was heard is enough; raises when the process ends or the time is up before."""
        with self._news:
            while not enough(self.heard):
                if not self._reader.is_alive():
                    raise PeerFailed(f"{self.name} ended early: {self.last_words()}")
                if not deadline.left:
                    raise PeerFailed(f"{self.name} said too little in time: {self.last_words()}")
                self._news.wait(min(_POLL_SECONDS, deadline.left))

    def require_alive(self) -> None:
        if self.process.poll() is not None:
            raise PeerFailed(f"{self.name} ended early: {self.last_words()}")

    def result(self, deadline: Deadline) -> dict[str, Any]:
        """Wait for its end; everything it said, as one object."""
        try:
            code = self.process.wait(deadline.left)
        except subprocess.TimeoutExpired:
            raise PeerFailed(f"{self.name} took longer than {deadline.seconds:g} s") from None
        self._reader.join(10)
        if code != 0:
            raise PeerFailed(f"{self.name} ended with {code}: {self.last_words()}")
        return {key: value for line in self.heard for key, value in line.items()}

    def end(self, grace_seconds: float = 5.0) -> bool:
        """SIGTERM, then SIGKILL to the whole group; whether SIGTERM was enough. May be called again."""
        if self._errors.closed:
            return True
        self._signal_group(signal.SIGTERM)
        try:
            self.process.wait(grace_seconds)
            obeyed = True
        except subprocess.TimeoutExpired:
            obeyed = False
        self._signal_group(signal.SIGKILL)  # also for children that outlived their parent
        self.process.wait(10)
        self._reader.join(10)
        assert self.process.stdout is not None  # noqa: S101 - it was asked for
        self.process.stdout.close()
        self._errors.close()
        return obeyed

    def last_words(self) -> str:
        if self._errors.closed:
            return "(over)"
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").splitlines()
        lines = [line for line in [*self._other_lines, *said] if line.strip()]
        return " / ".join(line.strip() for line in lines[-_LAST_LINES:]) or "it said nothing"

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def _read(self) -> None:
        assert self.process.stdout is not None  # noqa: S101 - it was asked for
        for line in self.process.stdout:
            heard = _as_object(line)
            with self._news:
                if heard is None:
                    self._other_lines.append(line)
                else:
                    self.heard.append(heard)
                self._news.notify_all()


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
