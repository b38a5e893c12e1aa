"""The development server: one per user, identified by its data directory."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from faultline.embedded.process import POLL_SECONDS, make_directory, server_account
from faultline.embedded.server import Server
from faultline.errors import EmbeddedServerError
from faultline.events import Event, emit, log
from faultline.supported_system import require_posix_for_embedded_server

_STOP_COMMAND = "faultline db stop"


@dataclass(frozen=True)
class ServerStatus:
    running: bool
    pid: int | None
    url: str | None = field(repr=False)  # contains the password
    version: str | None
    data_dir: Path


def default_data_dir() -> Path:
    """The data directory of this user's server; FAULTLINE_DATA_DIR names another one."""
    if chosen := os.environ.get("FAULTLINE_DATA_DIR"):
        return Path(chosen)
    if server_account():  # the server's account cannot enter root's home
        return Path("/var/lib/faultline/postgres")
    return _data_home() / "faultline" / "postgres"


def _data_home() -> Path:
    """The folder in which this system's programs keep the data of a user."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    if sys.platform == "win32":
        return _absolute("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    return _absolute("XDG_DATA_HOME") or Path.home() / ".local" / "share"


def _absolute(variable: str) -> Path | None:
    """The absolute path in a variable; the XDG specification ignores relative ones."""
    path = Path(os.environ.get(variable, ""))
    return path if path.is_absolute() else None


def ensure_running(
    data_dir: Path | None = None, timeout_seconds: float = 30, *, announces: bool = True
) -> str:
    """Start the development server if it is not running, and return its URL.

    The server outlives this process, so a start is announced: as an event if this process has an event log,
    else as a line on stderr.
    """
    require_posix_for_embedded_server()
    server = Server(data_dir or default_data_dir())
    with _start_stop_lock(server.data_dir, timeout_seconds):
        was_running = server.running
        server.start(timeout_seconds)
        if announces and not was_running:
            _announce(server.data_dir)
        return server.url


def _announce(data_dir: Path) -> None:
    if log.is_open:
        emit(Event.EMBEDDED_SERVER_STARTED, data_dir=str(data_dir), stop_with=_STOP_COMMAND)
    elif sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(
                f"faultline: started an embedded PostgreSQL for development; its data is in {data_dir};"
                f" stop it with: {_STOP_COMMAND}",
                file=sys.stderr,
                flush=True,
            )


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
    import fcntl  # Windows does not have it, and starts no server

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
