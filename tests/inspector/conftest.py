"""The inspector, in this process and as a subprocess, on the test's database."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from starlette.testclient import TestClient

from faultline.inspector.application import make_app
from faultline.inspector.inspector_settings import InspectorSettings

BOUND_SECONDS = 30.0
_ADDRESS = re.compile(r"inspector on (http://\S+?),")


@pytest.fixture
def client(database_url: str) -> Iterator[TestClient]:
    app = make_app(InspectorSettings(database_url=database_url))
    with TestClient(app, base_url="http://localhost") as client:
        yield client


class Served:
    """`faultline inspector serve` as its users run it."""

    def __init__(self, url: str, *options: str) -> None:
        self.lines: list[str] = []
        self._spoke = threading.Condition()
        program = [sys.executable, "-m", "faultline", "--database-url", url]
        self._process = subprocess.Popen(
            [*program, "inspector", "serve", "--port", "0", *options],
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.address = self.wait_for(_ADDRESS)

    def wait_for(self, pattern: re.Pattern[str]) -> str:
        """The first group of the first line that it says like this."""
        with self._spoke:
            assert self._spoke.wait_for(
                lambda: self._match(pattern) or not self._reader.is_alive(), BOUND_SECONDS
            ), self.lines
        found = self._match(pattern)
        assert found is not None, self.lines
        return found

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        found = [match[1] for line in self.lines if (match := pattern.search(line))]
        return found[0] if found else None

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._spoke:
                self.lines.append(line)
                self._spoke.notify_all()
        with self._spoke:
            self._spoke.notify_all()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> int:
        """The exit code; all of its output has been read by then."""
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(BOUND_SECONDS)
        self._reader.join(BOUND_SECONDS)
        return code

    def end(self) -> None:
        self._process.kill()
        self._process.wait(BOUND_SECONDS)
        self._reader.join(BOUND_SECONDS)
        assert self._process.stderr is not None
        self._process.stderr.close()


Serve = Callable[..., Served]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as started:

        def start(url: str, *options: str) -> Served:
            served = Served(url, *options)
            started.callback(served.end)
            return served

        yield start
