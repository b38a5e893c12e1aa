"""Starts real worker processes, hears what they say, and never leaves one behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
APP = "tests.processes.apps:app"
BOUND_SECONDS = 45.0

Event = dict[str, Any]


class Process:
    """One `faultline` process under observation: its events, its exit code, its last words."""

    def __init__(self, name: str, url: str, command: list[str]) -> None:
        self.name = name
        self.events: list[Event] = []
        self.stray_lines: list[str] = []
        self._heard = threading.Condition()
        program = [sys.executable, "-m", "faultline", "--app", APP, "--log-format", "json"]
        self._process = subprocess.Popen(
            [*program, "--verbose", *command],
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": url},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # what its handlers fork is in its group, and ends with it
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until the kernel has taken it away."""
        self._process.kill()
        self._process.wait(BOUND_SECONDS)

    def wait(self) -> int:
        """The exit code; everything it said has been heard by then."""
        try:
            code = self._process.wait(BOUND_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end; {self.last_words()}") from None
        self._reader.join(BOUND_SECONDS)
        return code

    # ── what it said ─────────────────────────────────────────────────────────────────────────────

    def heard(self, name: str, **fields: Any) -> list[Event]:
        """The events of that name that have these fields, oldest first."""
        wanted = {"event": name, **{key: _as_said(value) for key, value in fields.items()}}
        return [event for event in tuple(self.events) if wanted.items() <= event.items()]

    def wait_for_event(self, name: str, *, times: int = 1, **fields: Any) -> Event:
        """The `times`-th such event; fails when it does not come, or can no longer come."""
        deadline = time.monotonic() + BOUND_SECONDS
        with self._heard:
            while len(found := self.heard(name, **fields)) < times:
                can_come = self._reader.is_alive() and time.monotonic() < deadline
                assert can_come, f"{self.name} never said {name} {fields}; {self.last_words()}"
                self._heard.wait(0.1)
        return found[times - 1]

    def last_words(self) -> str:
        code = self._process.poll()
        state = "it is alive" if code is None else f"it ended with {code}"
        said = [json.dumps(event) for event in self.events[-15:]] + self.stray_lines[-30:]
        return "\n".join([f"{state} and said:", *said])

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            try:
                event = dict(json.loads(line))
            except (ValueError, TypeError):
                self.stray_lines.append(line.rstrip())
                continue
            with self._heard:
                self.events.append(event)
                self._heard.notify_all()

    # ── its end ──────────────────────────────────────────────────────────────────────────────────

    def end(self) -> None:
        """Whatever state it is in, it is gone afterwards, with all that it started."""
        children = self._supervised()
        for pid in (self.pid, *children):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # each leads a group of its own
        self._process.wait(BOUND_SECONDS)
        self._reader.join(BOUND_SECONDS)
        assert self._process.stderr is not None
        self._process.stderr.close()

    def _supervised(self) -> set[int]:
        """Of a supervisor: its workers, those that have said hello and those that have not yet."""
        if self.is_alive:  # it cannot start another one while we look
            self._process.send_signal(signal.SIGSTOP)
        pids = {int(event["worker"].split("-")[-2]) for event in self.heard("worker_started")}
        with contextlib.suppress(OSError):
            listed = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
            pids |= {int(pid) for pid in listed.split()}
        return {pid for pid in pids if pid != self.pid and _leads_a_group(pid)}


class Fleet:
    """All processes of one test."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._processes: list[Process] = []

    def worker(self, *options: str, name: str = "worker", url: str | None = None) -> Process:
        """Start a worker that looks often; `options` come last, and win."""
        return self._start(name, url, ["worker", "--poll-seconds", "0.1", *options])

    def started(self, *options: str, name: str = "worker", url: str | None = None) -> Process:
        """Start a worker, and wait until it is registered."""
        process = self.worker(*options, name=name, url=url)
        process.wait_for_event("worker_started")
        return process

    def reconciler(
        self, name: str = "reconciler", *options: str, url: str | None = None
    ) -> Process:
        return self._start(name, url, ["reconciler", *options])

    def end(self) -> None:
        with contextlib.ExitStack() as stack:  # one that resists does not save the others
            for process in self._processes:
                stack.callback(process.end)

    def _start(self, name: str, url: str | None, command: list[str]) -> Process:
        process = Process(name, url or self.url, command)
        self._processes.append(process)
        return process


def _as_said(value: Any) -> Any:
    return value if isinstance(value, int | float | str | list | None) else str(value)


def _leads_a_group(pid: int) -> bool:
    try:
        return os.getpgid(pid) == pid
    except ProcessLookupError:
        return False
