"""One PostgreSQL server: started, stopped, killed, and found again through its data directory."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from faultline.embedded import data_directory
from faultline.embedded.account import can_enter, runnable
from faultline.embedded.binaries import find_binaries
from faultline.embedded.pid_file import PidFile, disarm_reused_pid, is_postmaster
from faultline.embedded.process import POLL_SECONDS, spawn
from faultline.errors import EmbeddedServerError

_DEFAULTS = {"max_connections": "200", "max_prepared_transactions": "10"}
# Never overridden: a server of ours is reachable from this machine only, and with a password.
_LOOPBACK_ONLY = {"listen_addresses": "127.0.0.1", "unix_socket_directories": ""}


class Server:
    """One PostgreSQL over one data directory, reachable on loopback only, with a password.

    Nothing is remembered but the directory: any process that may read it can find, stop or kill
    the server. An `ephemeral` server dies with the process that started it (at once on Linux),
    and `stop` deletes its data; any other is detached, and outlives its parent.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        binaries: Path | None = None,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        ephemeral: bool = False,
    ) -> None:
        self.data_dir = data_dir.resolve()
        self.log_path = self.data_dir.with_name(f"{self.data_dir.name}.log")
        self.ephemeral = ephemeral
        self.environment: dict[str, str] = {}  # for the server alone; read by each `start`
        self._binaries = binaries
        self._port = port
        self._settings = {**_DEFAULTS, **(settings or {}), **_LOOPBACK_ONLY}

    @property
    def pid(self) -> int | None:
        """The postmaster's process id while it is alive."""
        seen = PidFile.read(self.data_dir)
        return seen.pid if seen and is_postmaster(seen.pid, self.data_dir) else None

    @property
    def running(self) -> bool:
        return self.pid is not None

    @property
    def url(self) -> str:
        """Where to connect; it stays the same over a crash and a restart."""
        seen = PidFile.read(self.data_dir)
        port = seen.port if seen else self._last_port()
        password = _read(self.data_dir / data_directory.PASSWORD_FILE)
        if port is None or password is None:
            raise EmbeddedServerError(f"no server of ours has run in {self.data_dir}")
        return f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres"

    @property
    def version(self) -> str | None:
        """The major version that made the data directory."""
        return (_read(self.data_dir / "PG_VERSION") or "").strip() or None

    def start(self, timeout_seconds: float = 30) -> None:
        """Return once the server accepts connections; a running server is left as it is."""
        if self.running:
            return
        deadline = time.monotonic() + timeout_seconds
        binaries = runnable(self._binaries or find_binaries(self.version))
        if self.version is None:
            data_directory.create(self.data_dir, binaries, timeout_seconds)
        disarm_reused_pid(self.data_dir)
        port = self._port or self._last_port() or _free_port()
        while (log := self._launch(binaries, port, deadline)) is not None:
            if time.monotonic() > deadline:
                raise self._failure("PostgreSQL did not start in time", log)
            if "still in use" in log:
                time.sleep(POLL_SECONDS * 10)  # backends of a killed server, soon gone
            elif "Address already in use" in log and not self._port:
                port = _free_port()
            else:
                raise self._failure("PostgreSQL did not start", log)

    def stop(
        self, timeout_seconds: float = 10, mode: Literal["fast", "immediate"] = "fast"
    ) -> None:
        """Stop the server; the data of an ephemeral one goes with it."""
        self.shut_down(timeout_seconds, mode)
        if self.ephemeral:
            data_directory.remove(self.data_dir, timeout_seconds)
            self.log_path.unlink(missing_ok=True)

    def shut_down(
        self, timeout_seconds: float = 10, mode: Literal["fast", "immediate"] = "fast"
    ) -> None:
        """Stop the server, for `start` to bring back: each time that `timeout_seconds` pass, with more
        force. Committed data is safe even then."""
        first = signal.SIGINT if mode == "fast" else signal.SIGQUIT
        for wanted in (first, signal.SIGQUIT, signal.SIGKILL):
            if self._signal(wanted, timeout_seconds):
                break

    def kill(self, timeout_seconds: float = 10) -> None:
        """SIGKILL the postmaster, as a crash would; `start` brings the server back."""
        self._signal(signal.SIGKILL, timeout_seconds)

    def _last_port(self) -> int | None:
        """The port of the last run, so that a URL copied yesterday works today."""
        match = re.search(r'"port=(\d+)"', _read(self.data_dir / "postmaster.opts") or "")
        return int(match[1]) if match else None

    def _signal(self, wanted: signal.Signals, timeout_seconds: float) -> bool:
        """Send a signal, and say whether the postmaster was gone before the time was up."""
        pid = self.pid
        if pid is None:
            return True
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, wanted)
        deadline = time.monotonic() + timeout_seconds
        while is_postmaster(pid, self.data_dir):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        with contextlib.suppress(ChildProcessError):  # reaped here, if it was ours to reap
            os.waitpid(pid, 0)
        return True

    def _launch(self, binaries: Path, port: int, deadline: float) -> str | None:
        """Start one postmaster: None once it is ready, or what it logged before it gave up."""
        settings = {**self._settings, "port": str(port)}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [str(binaries / "postgres"), "-D", str(self.data_dir), *options]
        with self.log_path.open("ab") as log:
            log_start = log.tell()
            process = spawn(command, log, self.environment, dies_with_us=self.ephemeral)
        try:
            while process.poll() is None:
                seen = PidFile.read(self.data_dir)
                if seen and seen.ready and seen.pid == process.pid:
                    # From here on the server is known by its pid file: it may outlive this object.
                    process.returncode = 0
                    return None
                if time.monotonic() > deadline:
                    raise self._failure("PostgreSQL was not ready in time", self._log(log_start))
                time.sleep(POLL_SECONDS)
        except BaseException:
            process.kill()
            process.wait(timeout=10)
            raise
        return self._log(log_start)

    def _log(self, start: int) -> str:
        with self.log_path.open("rb") as log:
            log.seek(start)
            return log.read().decode(errors="replace")

    def _failure(self, what: str, log: str) -> EmbeddedServerError:
        last_lines = "\n".join(log.strip().splitlines()[-12:])
        return EmbeddedServerError(
            f"{what} in {self.data_dir}; its last words:\n{last_lines}\n",
            hint=f"the whole log is {self.log_path}; set DATABASE_URL to use another PostgreSQL",
        )


@contextlib.contextmanager
def temporary_server(
    *,
    binaries: Path | None = None,
    settings: Mapping[str, str] | None = None,
    parent: Path | None = None,
    timeout_seconds: float = 30,
) -> Iterator[Server]:
    """A server that exists inside the `with` block, and leaves neither process nor file."""
    root = parent or Path(tempfile.gettempdir())
    if not can_enter(root):  # root's own, say
        root = Path("/tmp")  # noqa: S108 - the directory made in it has a name of its own
    with tempfile.TemporaryDirectory(prefix="faultline-postgres-", dir=root) as home:
        Path(home).chmod(0o711)
        server = Server(Path(home, "data"), binaries=binaries, settings=settings, ephemeral=True)
        try:
            server.start(timeout_seconds)
            yield server
        finally:
            server.stop(mode="immediate")  # nothing is kept, so nothing needs a checkpoint


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
