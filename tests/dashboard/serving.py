"""Starts inspectors: as a process, as users do, or faster in a thread of the test."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import uvicorn
from starlette.types import ASGIApp

from faultline.inspector.application import make_app
from faultline.inspector.inspector_settings import InspectorSettings
from faultline_drills.processes.observed_process import ObservedProcess
from tests.waiting import wait_until

TIMEOUT_SECONDS = 40.0
APP = "faultline_drills.race.payment_task:app"  # its tasks are not run


class Inspector(Protocol):
    """A server of the dashboard at `url`."""

    @property
    def url(self) -> str: ...


class ServerProcess:
    """A `faultline` command that serves HTTP. The constructor waits until it listens."""

    def __init__(self, database_url: str, command: str, *options: str) -> None:
        self._process = ObservedProcess(
            command, app=APP, url=database_url, command=command, options=options
        )
        self.url = self._wait_for_address()

    def _wait_for_address(self) -> str:
        def address() -> str | None:
            found = re.search(r"http://[\d.]+:\d+", "\n".join(self._process.stray_lines))
            return found[0] if found else None

        def check_alive() -> None:
            assert self._process.is_alive, f"the server ended: {self._process.recent_output()}"

        try:
            found = wait_until(
                address,
                lambda: f"an address in {self._process.recent_output()}",
                limit_seconds=TIMEOUT_SECONDS,
                check=check_alive,
            )
        except AssertionError:
            self._process.end()
            raise
        assert found is not None
        return found

    def end(self) -> None:
        self._process.end()


class ServerThread:
    """An application in a thread; it starts in a few milliseconds."""

    def __init__(self, application: ASGIApp) -> None:
        config = uvicorn.Config(
            application, port=0, log_level="error", ws="none", timeout_graceful_shutdown=5
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve()))
        self._thread.start()
        self.url = self._wait_for_address()

    def _wait_for_address(self) -> str:
        def still_runs() -> None:
            assert self._thread.is_alive(), "the inspector did not start"

        wait_until(lambda: self._server.started, "the start of the inspector", check=still_runs)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    def end(self) -> None:
        self._server.should_exit = True
        self._thread.join(TIMEOUT_SECONDS)
        assert not self._thread.is_alive(), "the inspector does not stop"


@contextmanager
def serving(database_url: str, *, reports: Path) -> Iterator[Inspector]:
    settings = InspectorSettings(database_url=database_url, reports=reports, version="test")
    with serving_application(make_app(settings)) as server:
        yield server


@contextmanager
def serving_application(application: ASGIApp) -> Iterator[Inspector]:
    server = ServerThread(application)
    try:
        yield server
    finally:
        server.end()


def start_inspector(
    database_url: str,
    *,
    port: str = "0",
    reports: Path | None = None,
    api_url: str | None = None,
    max_streams: int | None = None,
) -> ServerProcess:
    options = ["serve", "--port", port]
    if reports is not None:
        options += ["--reports", str(reports)]
    if api_url is not None:
        options += ["--api-url", api_url]
    if max_streams is not None:
        options += ["--max-streams", str(max_streams)]
    return ServerProcess(database_url, "inspector", *options)
