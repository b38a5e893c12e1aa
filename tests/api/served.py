"""A real `faultline api` process, and clients that talk to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import orjson
import psycopg

from faultline.postgres.sessions import connect, run
from faultline.statements import keys
from faultline.statements.keys import Scope
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
BOUND_SECONDS = 30.0


def make_key(url: str, *scopes: Scope, name: str = "test") -> str:
    key = keys.new_key()
    with connect(url) as conn:
        run(conn, keys.create(name, key, scopes or tuple(Scope)))
    return key.text


class Served:
    """The process, where it listens, and its stderr."""

    def __init__(self, url: str, *options: str, app: str | None = None) -> None:
        self.stderr_lines: list[str] = []
        self._spoke = threading.Condition()
        program = [sys.executable, "-m", "faultline", "--log-format", "json"]
        program += ["--app", app] if app else []
        self._process = subprocess.Popen(
            [*program, "api", "--port", "0", *options],
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": url, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()
        assert self._process.stdout is not None
        first = self._process.stdout.readline()
        assert " on http://" in first, (first, self.stderr_lines)
        self.address = first.split(" on ")[1].strip()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in iter(self._process.stderr.readline, ""):
            with self._spoke:
                self.stderr_lines.append(line)
                self._spoke.notify_all()

    @property
    def host_and_port(self) -> tuple[str, int]:
        parts = urlsplit(self.address)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port

    def wait_for(self, words: str) -> None:
        """Waits for the log line: the response may arrive before the line is read."""
        with self._spoke:
            is_printed = self._spoke.wait_for(
                lambda: any(words in line for line in self.stderr_lines), BOUND_SECONDS
            )
        assert is_printed, (words, self.stderr_lines)

    def wait_for_event(self, name: str, **fields: Any) -> dict[str, Any]:
        """The first event of that name with these fields."""

        def matching() -> list[dict[str, Any]]:
            events = [orjson.loads(line) for line in self.stderr_lines if line.startswith("{")]
            return [event for event in events if wanted.items() <= event.items()]

        wanted = {"event": name, **fields}
        with self._spoke:
            assert self._spoke.wait_for(matching, BOUND_SECONDS), (wanted, self.stderr_lines)
            return matching()[0]

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def wait(self) -> int:
        try:
            return self._process.wait(BOUND_SECONDS)
        finally:
            self._listening.join(BOUND_SECONDS)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(BOUND_SECONDS)
        self._listening.join(BOUND_SECONDS)
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()


@contextmanager
def served(url: str, *options: str, app: str | None = None) -> Iterator[Served]:
    server = Served(url, *options, app=app)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def client_of(server: Served, key: str | None = None) -> Iterator[httpx2.Client]:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    with httpx2.Client(
        base_url=server.address, headers=headers, timeout=BOUND_SECONDS, trust_env=False
    ) as client:
        yield client


def code_of(response: httpx2.Response) -> str:
    """The code of an error, which has its one shape."""
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"code", "message", "hint"}
    assert "Traceback" not in response.text
    return str(body["error"]["code"])


def wait_until_blocked(url: str, count: int) -> None:
    """Until so many requests wait in the database for a lock."""
    waiting = (
        "SELECT count(*) >= %s FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'faultline api' AND wait_event_type = 'Lock'"
    )
    with psycopg.connect(url, autocommit=True) as conn:
        wait_until(
            lambda: conn.execute(waiting, [count]).fetchone() == (True,),
            f"{count} requests that wait for a lock",
        )
