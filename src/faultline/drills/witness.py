"""Watches the worker processes of a drill: starts them, reads their events, leaves none behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class Witness:
    """One worker process under observation."""

    def __init__(
        self,
        name: str,
        *,
        app: str,
        url: str,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        report: Callable[[str, str, dict[str, Any]], None] = lambda name, event, fields: None,
    ) -> None:
        self.name = name
        self._report = report
        command = [sys.executable, "-m", "faultline", "--app", app, "--log-format", "json"]
        command += ["--verbose", "worker", *options]
        variables = {**os.environ, **(environment or {}), "DATABASE_URL": url}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=variables)
        self.events: list[str] = []
        self.stray_lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None  # noqa: S101 - it was asked for
        for line in self.process.stderr:
            try:
                fields = json.loads(line)
                event = fields.pop("event")
            except (ValueError, KeyError, AttributeError):
                self.stray_lines.append(line.rstrip())
                continue
            for noise in ("at", "worker"):
                fields.pop(noise, None)
            self.events.append(event)
            self._report(self.name, event, fields)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def wait(self, timeout_seconds: float) -> int:
        """The exit code; everything it said has been read by then."""
        code = self.process.wait(timeout_seconds)
        self._reader.join(timeout_seconds)
        return code

    def end(self) -> None:
        """Whatever state it is in, it is gone afterwards."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()  # ends a stopped process too
            self.process.wait(10)
        self._reader.join(10)
        if self.process.stderr is not None:
            self.process.stderr.close()
