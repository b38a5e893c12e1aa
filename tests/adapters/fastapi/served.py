"""Runs an application in uvicorn, as its users do."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]
_ADDRESS = re.compile(r"Uvicorn running on (http://\S+)")


class Served:
    """A process of uvicorn. Its output is kept."""

    def __init__(
        self,
        url: str,
        application: str = "tests.adapters.fastapi.shop:shop",
        *,
        folder: Path = ROOT,
    ) -> None:
        self._lines: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", application, "--port", "0"],
            cwd=folder,
            env={**os.environ, "DATABASE_URL": url, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self._lines += [""]
        for line in self._process.stdout:
            self._lines.append(line)

    @property
    def output(self) -> str:
        return "".join(self._lines)

    def wait_for_address(self) -> str:
        def check() -> None:
            assert self._process.poll() is None, self.output

        found = wait_until(
            lambda: _ADDRESS.search(self.output), lambda: self.output, limit_seconds=90, check=check
        )
        assert found is not None
        return found[1]

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def wait_for_end(self) -> int:
        code = self._process.wait(60)
        self._reader.join(10)
        return code

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait(60)
        self._reader.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()
