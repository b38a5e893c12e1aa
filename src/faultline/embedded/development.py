"""The development server: one per user, identified by its data directory."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from faultline.embedded.process import POLL_SECONDS, make_directory, server_account
from faultline.embedded.server import Server
from faultline.errors import EmbeddedServerError


@dataclass(frozen=True)
class ServerStatus:
    running: bool
    pid: int | None
    url: str | None = field(repr=False)  # contains the password
    version: str | None
    data_dir: Path


def default_data_dir() -> Path:
    if chosen := os.environ.get("FAULTLINE_DATA_DIR"):
        return Path(chosen)
    if server_account():  # the server's account cannot enter root's home
        return Path("/var/lib/faultline/postgres")
    data_home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data_home) / "faultline" / "postgres"


def ensure_running(data_dir: Path | None = None, timeout_seconds: float = 30) -> str:
    """Start the development server if it is not running, and return its URL."""
    server = Server(data_dir or default_data_dir())
    with _start_stop_lock(server.data_dir, timeout_seconds):
        server.start(timeout_seconds)
        return server.url


def stop_running(data_dir: Path | None = None, timeout_seconds: float = 30) -> bool:
    """Stop the development server; return False if it was not running."""
    server = Server(data_dir or default_data_dir())
    if not server.running:
        return False
    with _start_stop_lock(server.data_dir, timeout_seconds):
        server.stop(timeout_seconds)
    return True


def status(data_dir: Path | None = None) -> ServerStatus:
    server = Server(data_dir or default_data_dir())
    pid = server.pid
    url = server.url if pid else None
    return ServerStatus(pid is not None, pid, url, server.version, server.data_dir)


@contextlib.contextmanager
def _start_stop_lock(data_dir: Path, timeout_seconds: float) -> Iterator[None]:
    """Lock the starting and stopping of this directory's server across processes."""
    make_directory(data_dir.parent)
    deadline = time.monotonic() + timeout_seconds
    with data_dir.with_name(f"{data_dir.name}.lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise EmbeddedServerError(
                        f"another process has locked {lock.name}",
                        hint="another process is starting or stopping this server; try again in a moment",
                    ) from None
                time.sleep(POLL_SECONDS)
        yield
