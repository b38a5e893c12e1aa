"""A thousand clients connect to every port and never finish a request.

They hold connections to a worker's metrics port, the API and the inspector, in processes that may
open 256 files. Every job must run once and succeed, although its handler needs a file descriptor,
and each port must still answer a client that sends a whole request.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from faultline_drills.context import DrillContext
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay

_FILES = 256  # of each process
_HALF_OPEN = 1_000
_FILES_FOR_IT = 2_048  # of this process, which holds the flood
_ANSWER_SECONDS = 30.0  # several times as long as a port waits for a request
_PATHS = {"worker": "/metrics", "api": "/health", "inspector": "/api/about"}
_DISTURBED = "SELECT count(*) FROM faultline.jobs WHERE state <> 'succeeded' OR attempts <> 1"


def missing_requirement() -> str | None:
    try:
        import resource
    except ImportError:
        return "needs a system with a limit of open files"
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < _FILES_FOR_IT:
        return f"needs {_FILES_FOR_IT} open files in one process; the limit is {hard}"
    return None


@scenario(shows=("floods", "commits"), missing_requirement=missing_requirement)
def connection_flood(drill: DrillContext) -> None:
    ports = {name: _free_port() for name in _PATHS}
    with _open_files(_FILES):  # which the processes inherit
        worker = drill.started_worker("--metrics-port", str(ports["worker"]))
        drill.worker("--port", str(ports["api"]), command="api")
        drill.worker("serve", "--port", str(ports["inspector"]), command="inspector")
    for name, port in ports.items():
        drill.wait_until(lambda n=name, p=port: _answers(p, _PATHS[n]), f"{name} at its port")  # type: ignore[misc]
    with _open_files(_FILES_FOR_IT), ExitStack() as held:
        for name, port in ports.items():
            count = _flood(held, port, _HALF_OPEN // len(ports))
            drill.inject("flood", name, connections=count)
        for number in range(drill.settings.jobs):
            drill.submit(pay, number=number, outside=True)
        ended = _in_time(lambda: drill.unfinished() == 0, drill.settings.timeout_seconds / 2)
        drill.expect(ended, "jobs do not run while every port is flooded")
        for name, port in ports.items():
            answered = _answers_in_time(port, _PATHS[name])
            drill.expect(answered, f"{name} does not answer while it is flooded")
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs", by=worker)
    drill.expect(drill.count(_DISTURBED) == 0, "a job needed a second attempt, or did not succeed")
    for name, port in ports.items():
        drill.expect(
            _answers_in_time(port, _PATHS[name]), f"{name} does not answer after the flood"
        )


def _flood(held: ExitStack, port: int, count: int) -> int:
    """Connect so many clients; their side stays open when the server closes."""
    for number in range(count):
        try:
            client = held.enter_context(socket.create_connection(("127.0.0.1", port), 10.0))
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n" if number % 2 else b"G")
        except OSError:  # refused, or closed already
            continue
    return count


def _answers_in_time(port: int, path: str) -> bool:
    return _in_time(lambda: _answers(port, path), _ANSWER_SECONDS)


def _in_time(holds: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.1)
    return False


def _answers(port: int, path: str) -> bool:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_SECONDS)
    with contextlib.closing(client), contextlib.suppress(OSError, http.client.HTTPException):
        client.request("GET", path)
        return client.getresponse().status == 200
    return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def _open_files(limit: int) -> Iterator[None]:
    """Set the limit of open files of this process and of those that it starts."""
    import resource

    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))
