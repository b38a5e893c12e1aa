"""Real `faultline` processes, each under its own account, and their output."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
APP = "tests.security.shop:app"
BOUND_SECONDS = 60.0
METRICS_PORT = 9464  # on an address of one's own
_BOUND = re.compile(r" on (http://\S+?)(?:,|\s|$)")


def environment(**variables: str) -> dict[str, str]:
    """This process's environment, with no database but the given one."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DATABASE_URL", "FAULTLINE_", "PG"))
    }
    return {**kept, "PYTHONUNBUFFERED": "1", **variables}


def program(*words: str) -> list[str]:
    return [sys.executable, "-m", "faultline", "--log-format", "json", *words]


def run(words: Sequence[str], variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run one command until it exits."""
    return subprocess.run(
        program(*words),
        cwd=ROOT,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
        check=False,
    )


class Service:
    """A command that runs until it is stopped, with the lines of its output."""

    def __init__(self, *words: str, **variables: str) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            program(*words),
            cwd=ROOT,
            env=environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.lines.extend(iter(self._process.stdout.readline, ""))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        return "".join(tuple(self.lines))

    def address(self) -> str:
        wait_while_running(lambda: _BOUND.search(self.output) is not None, self)
        found = _BOUND.search(self.output)
        assert found is not None
        return found[1]

    def wait_for_word(self, word: str) -> None:
        wait_while_running(lambda: word in self.output, self)

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def descendants(self) -> set[int]:
        """Itself, and every process that it has started."""
        found, fresh = set[int](), {self.pid}
        while fresh:
            found |= fresh
            children = set[int]()
            for pid in fresh:
                with contextlib.suppress(OSError):
                    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
                        children |= set(map(int, listed.read_text().split()))
            fresh = children - found
        return found

    def tell_to_stop(self) -> None:
        if not self.has_ended:
            self._process.send_signal(signal.SIGTERM)

    def end(self) -> str:
        """Told to stop, and gone in any case: all of its output."""
        if not self.has_ended:
            family = self.descendants()
            self.tell_to_stop()
            try:
                self._process.wait(BOUND_SECONDS)
            except subprocess.TimeoutExpired:
                for pid in family:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        self._process.wait(BOUND_SECONDS)
        self._reader.join(BOUND_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return self.output


@contextlib.contextmanager
def services() -> Iterator[Callable[..., Service]]:
    """Starts services; stops all of them together at the end of the block."""
    started: list[Service] = []

    def start(*words: str, **variables: str) -> Service:
        started.append(Service(*words, **variables))
        return started[-1]

    try:
        yield start
    finally:
        for service in started:
            service.tell_to_stop()
        for service in started:
            service.end()


def wait_while_running(holds: Callable[[], bool], *services: Service) -> None:
    """Wait until it holds, and fail when one of the services ends before that."""

    def all_run() -> None:
        ended = [service.output for service in services if service.has_ended]
        assert not ended, f"it has ended: {ended}"

    wait_until(holds, lambda: str([service.output for service in services]), check=all_run)
