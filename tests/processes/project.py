"""A user's project in a folder of its own, and processes that run there."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from textwrap import dedent

from tests.waiting import LIMIT_SECONDS, wait_until


class ProjectProcess:
    """A process whose output is collected while it runs."""

    def __init__(self, arguments: list[str], folder: Path, environment: dict[str, str]) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        return "".join(self._lines)

    def wait_for(self, text: str, *, times: int = 1) -> None:
        wait_until(
            lambda: self.output.count(text) >= times,
            lambda: f"{text!r}, {times} times, in:\n{self.output}",
            check=lambda: self._check(text, times),
        )

    def wait(self) -> int:
        """The exit code; the output is complete then."""
        code = self.popen.wait(LIMIT_SECONDS)
        self._reader.join(LIMIT_SECONDS)
        return code

    def end(self) -> None:
        """End the process. One that it started holds the pipe until it has drained."""
        if self.popen.poll() is None:
            self.popen.kill()
        self.wait()
        if self.popen.stdout is not None and not self._reader.is_alive():
            self.popen.stdout.close()

    def _check(self, text: str, times: int) -> None:
        if self.popen.poll() is not None:
            self._reader.join(LIMIT_SECONDS)
            assert self.output.count(text) >= times, f"it ended:\n{self.output}"

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self._lines.append(line)


class Project:
    """Files of a project; its processes are ended with the test."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self.folder = folder
        self._processes: list[ProjectProcess] = []
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("FAULTLINE_", "PYTEST", "COV"))
        }
        self.environment |= {"DATABASE_URL": database_url, "PYTHONUNBUFFERED": "1"}

    def write(self, **sources: str) -> None:
        """Write modules of the package `shop`; `a__b` is the module `shop.a.b`."""
        for name, source in sources.items():
            path = self.folder.joinpath("shop", *name.split("__")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            (path.parent / "__init__.py").touch()
            path.write_text(dedent(source))

    def start(self, *arguments: str) -> ProjectProcess:
        process = ProjectProcess(list(arguments), self.folder, self.environment)
        self._processes.append(process)
        return process

    def faultline(self, *words: str, app: str = "shop.app:app") -> ProjectProcess:
        return self.start("-m", "faultline", "--app", app, *words)

    def end(self) -> None:
        for process in self._processes:
            process.end()
