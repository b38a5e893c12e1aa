"""Servers that end with their parent process."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

import pytest

from faultline import embedded
from faultline.embedded.process import command_line
from tests.waiting import wait_until

from .helpers import python, query_value


@pytest.mark.slow
@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ValueError])
def test_a_temporary_server_ends_after_any_exception(
    interruption: type[BaseException],
) -> None:
    seen: list[embedded.Server] = []

    def interrupted() -> None:
        with embedded.temporary_server() as server:
            seen.append(server)
            raise interruption

    with pytest.raises(interruption):
        interrupted()
    assert not seen[0].running
    assert not seen[0].data_dir.parent.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a parent-death signal")
def test_an_ephemeral_server_dies_when_its_parent_is_killed_with_sigkill(home: Path) -> None:
    program = """
        import pathlib, sys
        from faultline.embedded import Server
        server = Server(pathlib.Path(sys.argv[1]), ephemeral=True)
        server.start()
        print(server.pid, flush=True)
        sys.stdin.read()
    """
    with python(program, str(home / "data")) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        server = embedded.Server(home / "data")
        assert server.pid == pid
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: not command_line(pid))
    assert not server.running


@pytest.mark.slow
def test_an_ephemeral_server_outlives_the_thread_that_started_it(home: Path) -> None:
    server = embedded.Server(home / "data", ephemeral=True)
    starter = threading.Thread(target=server.start)
    starter.start()
    starter.join(timeout=30)
    try:
        # The query would be interrupted if the end of the thread were taken for the end of the parent.
        assert query_value(server.url, "SELECT 1 FROM pg_sleep(0.3)") == "1"
    finally:
        server.stop(mode="immediate")
    assert not server.data_dir.exists()
