"""Signals while the event loop starts or closes, and to a stopping server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.served import Served, served
from tests.processes.fleet import APP, BOUND_SECONDS, ROOT
from tests.slow import slow_unless
from tests.waiting import wait_until

# Python imports this at its start. The process sends SIGTERM to itself at each named point of its event
# loop's life, in this order.
HOOK = """
import asyncio
import os
import signal
import sys

if {loop!r} == "asyncio":
    sys.modules["uvloop"] = None
    Loop = asyncio.SelectorEventLoop
else:
    import uvloop
    Loop = uvloop.Loop

seen = set()

def send_sigterm(point):
    if point not in seen:
        seen.add(point)
        with open({log!r}, "a") as log:
            log.write(point + "\\n")
        os.kill(os.getpid(), signal.SIGTERM)

class SignalledLoop(Loop):
    def create_task(self, *args, **options):
        task = super().create_task(*args, **options)
        send_sigterm("the task is made")
        return task

    def run_until_complete(self, future):
        send_sigterm("the loop begins")
        return super().run_until_complete(future)

    async def shutdown_asyncgens(self):
        send_sigterm("the loop closes")
        await super().shutdown_asyncgens()

    def close(self):
        send_sigterm("before it is closed")
        super().close()
        send_sigterm("after it was closed")

asyncio.events.new_event_loop = SignalledLoop
if Loop is not asyncio.SelectorEventLoop:
    uvloop.new_event_loop = SignalledLoop
"""
POINTS = [
    "the task is made",
    "the loop begins",
    "the loop closes",
    "before it is closed",
    "after it was closed",
]


@pytest.mark.parametrize(
    ("loop", "command"),
    slow_unless(
        [
            ("uvloop", ["worker"]),
            ("asyncio", ["worker"]),
            ("asyncio", ["reconciler"]),
            ("uvloop", ["api", "--port", "0", "--insecure-no-keys"]),
            ("uvloop", ["inspector", "serve", "--port", "0"]),
        ],
        ("uvloop", ["worker"]),
    ),
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_a_signal_while_the_event_loop_starts_or_closes_ends_the_process_with_0(
    database_url: str, tmp_path: Path, loop: str, command: list[str]
) -> None:
    log = tmp_path / "points"
    (tmp_path / "sitecustomize.py").write_text(HOOK.format(loop=loop, log=str(log)))
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-m", "faultline", "--app", APP, *command],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": database_url, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
    )

    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "never awaited" not in done.stderr
    assert log.read_text().splitlines() == POINTS  # all were reached


UNFINISHED_REQUEST = (
    b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 9\r\nExpect: 100-continue\r\n\r\n"
)


@pytest.mark.slow
def test_a_second_interrupt_ends_an_api_at_once_and_without_a_traceback(database_url: str) -> None:
    with (
        served(
            database_url, "--insecure-no-keys", "--request-seconds=60", "--drain-seconds=60"
        ) as api,
        socket.create_connection(api.host_and_port, BOUND_SECONDS) as client,
    ):
        client.sendall(UNFINISHED_REQUEST)
        assert client.recv(100).startswith(b"HTTP/1.1 100")  # the request is in progress
        api.interrupt()
        wait_until(lambda: not _accepts(api))
        api.interrupt()
        assert api.wait() == 0, api.stderr_lines
        assert "Traceback" not in "".join(api.stderr_lines)


def _accepts(api: Served) -> bool:
    try:
        socket.create_connection(api.host_and_port, BOUND_SECONDS).close()
    except ConnectionRefusedError:
        return False
    return True
