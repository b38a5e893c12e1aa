"""Watches the processes of a drill: starts them, hears their events, and leaves none behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from faultline.postgres.address import environment_with

Report = Callable[[str, str, dict[str, Any]], None]

_GONE_SECONDS = 60.0  # for the kernel to take away what was killed, on a machine that is busy


class Witness:
    """One `faultline` process under observation; a worker unless `command` says otherwise."""

    def __init__(
        self,
        name: str,
        *,
        app: str,
        url: str,
        options: Sequence[str] = (),
        command: str = "worker",
        environment: Mapping[str, str] | None = None,
        report: Report = lambda name, event, fields: None,
        on_end: Callable[[str], None] = lambda name: None,
    ) -> None:
        self.name = name
        self.events: list[str] = []
        self.records: list[dict[str, Any]] = []
        self.stray_lines: list[str] = []
        self._report, self._on_end = report, on_end
        self._heard = threading.Condition()
        program = [sys.executable, "-m", "faultline", "--app", app, "--log-format", "json"]
        self.process = subprocess.Popen(
            [*program, "--verbose", command, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # ours may be somebody's JSON
            stderr=subprocess.PIPE,
            text=True,
            env={**environment_with(url), **(environment or {})},
            start_new_session=True,  # what its handlers fork is in its group, and ends with it
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has stopped it, with every thread it has."""
        look_only = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        try:
            return os.waitid(os.P_PID, self.pid, look_only) is not None
        except ChildProcessError:
            return False  # it has ended

    # ── what it says ─────────────────────────────────────────────────────────────────────────────

    def heard(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        """The events of that name that have these fields, oldest first."""
        wanted = {"event": event, **fields}
        return [record for record in tuple(self.records) if wanted.items() <= record.items()]

    def wait_for(self, event: str, *, timeout_seconds: float, **fields: Any) -> bool:
        """Whether it said so in time; False at once when it no longer can."""
        deadline = time.monotonic() + timeout_seconds
        with self._heard:
            while not self.heard(event, **fields):
                if not self._reader.is_alive() or time.monotonic() > deadline:
                    return bool(self.heard(event, **fields))
                self._heard.wait(0.1)
        return True

    def last_words(self) -> str:
        state = "it is alive" if self.is_alive else f"it ended with {self.process.returncode}"
        said = [json.dumps(record) for record in self.records[-8:]] + self.stray_lines[-20:]
        return "\n".join([f"{self.name}: {state}, and said:", *said])

    def _read(self) -> None:
        assert self.process.stderr is not None  # noqa: S101 - it was asked for
        for line in self.process.stderr:
            try:
                record = dict(json.loads(line))
                event = record["event"]
            except (ValueError, KeyError, TypeError):
                self.stray_lines.append(line.rstrip())
                continue
            noise = ("event", "at", "worker")
            fields = {key: value for key, value in record.items() if key not in noise}
            with self._heard:
                self.records.append(record)
                self.events.append(event)
                self._heard.notify_all()
            self._report(self.name, event, fields)
        self._on_end(self.name)

    # ── what is done to it ───────────────────────────────────────────────────────────────────────

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def stop(self) -> None:
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait until the kernel has taken it away."""
        self.send(signal.SIGKILL)
        self.process.wait(_GONE_SECONDS)

    def wait(self, timeout_seconds: float) -> int:
        """The exit code; everything it said has been read by then."""
        code = self.process.wait(timeout_seconds)
        self._reader.join(timeout_seconds)
        return code

    def end(self) -> None:
        """Whatever state it is in, it is gone afterwards, with all that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)  # ends a stopped process too
        self.process.wait(_GONE_SECONDS)
        self._reader.join(_GONE_SECONDS)
        if self.process.stderr is not None:
            self.process.stderr.close()
