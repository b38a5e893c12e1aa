"""Starts, stops and kills a PostgreSQL server, found by its data directory."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from faultline.embedded.process import (
    POLL_SECONDS,
    PidFile,
    can_enter,
    child_options,
    chown_to_server_account,
    find_binaries,
    is_postmaster,
    make_directory,
    reachable_binaries,
    replace_reused_pid,
    spawn,
)
from faultline.errors import EmbeddedServerError
from faultline.supported_system import require_posix_for_embedded_server

_DEFAULTS = {"max_connections": "200", "max_prepared_transactions": "10"}
# Never overridden: the server is reachable only from this machine, and with a password.
_LOOPBACK_ONLY = {"listen_addresses": "127.0.0.1", "unix_socket_directories": ""}


class Server:
    """A PostgreSQL server of one data directory, on loopback and with a password.

    Any process that may read the data directory can find, stop or kill the server. An `ephemeral` server dies
    with the process that started it (at once on Linux), and `stop` deletes its data. Any other server is
    detached and outlives its parent.
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
        self.environment: dict[str, str] = {}  # variables for the server; read at each `start`
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
        """The server's URL; it stays the same after a crash or a restart."""
        seen = PidFile.read(self.data_dir)
        port = seen.port if seen else self._last_port()
        password = _read(self.data_dir / PASSWORD_FILE)
        if port is None or password is None:
            raise EmbeddedServerError(
                f"no embedded server has run in {self.data_dir}: start one first"
            )
        return f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres"

    @property
    def version(self) -> str | None:
        """The major version that created the data directory."""
        return (_read(self.data_dir / "PG_VERSION") or "").strip() or None

    def start(self, timeout_seconds: float = 30) -> None:
        """Start the server unless it runs; return when it accepts connections."""
        require_posix_for_embedded_server()
        if self.running:
            return
        deadline = time.monotonic() + timeout_seconds
        binaries = reachable_binaries(self._binaries or find_binaries(self.version))
        if self.version is None:
            create_data_directory(self.data_dir, binaries, timeout_seconds)
        replace_reused_pid(self.data_dir)
        port = self._port or self._last_port() or _free_port()
        while (log := self._launch(binaries, port, deadline)) is not None:
            if time.monotonic() > deadline:
                raise self._failure("PostgreSQL did not start in time", log)
            if "still in use" in log:
                time.sleep(POLL_SECONDS * 10)  # wait for the backends of a killed server to end
            elif "Address already in use" in log and not self._port:
                port = _free_port()
            else:
                raise self._failure("PostgreSQL did not start", log)

    def stop(
        self, timeout_seconds: float = 10, mode: Literal["fast", "immediate"] = "fast"
    ) -> None:
        """Stop the server; delete its data if it is ephemeral."""
        self.shut_down(timeout_seconds, mode)
        if self.ephemeral:
            remove_data_directory(self.data_dir, timeout_seconds)
            self.log_path.unlink(missing_ok=True)

    def shut_down(
        self, timeout_seconds: float = 10, mode: Literal["fast", "immediate"] = "fast"
    ) -> None:
        """Stop the server and keep its data.

        After each `timeout_seconds` a stronger signal is sent. Committed data is safe even then.
        """
        first = signal.SIGINT if mode == "fast" else signal.SIGQUIT
        for wanted in (first, signal.SIGQUIT, signal.SIGKILL):
            if self._signal(wanted, timeout_seconds):
                break

    def kill(self, timeout_seconds: float = 10) -> None:
        """Send SIGKILL to the postmaster, like a crash; `start` recovers the server."""
        self._signal(signal.SIGKILL, timeout_seconds)

    def _last_port(self) -> int | None:
        """Return the port of the last run, so that the URL stays valid."""
        match = re.search(r'"port=(\d+)"', _read(self.data_dir / "postmaster.opts") or "")
        return int(match[1]) if match else None

    def _signal(self, wanted: signal.Signals, timeout_seconds: float) -> bool:
        """Send a signal; return whether the postmaster ended within the timeout."""
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
        with contextlib.suppress(ChildProcessError):  # not a child of this process
            os.waitpid(pid, 0)
        return True

    def _launch(self, binaries: Path, port: int, deadline: float) -> str | None:
        """Start a postmaster; return None when it is ready, or its log if it ended."""
        settings = {**self._settings, "port": str(port)}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [str(binaries / "postgres"), "-D", str(self.data_dir), *options]
        with self.log_path.open("ab") as log:
            log_start = log.tell()
            process = spawn(command, log, self.environment, dies_with_parent=self.ephemeral)
        try:
            while process.poll() is None:
                seen = PidFile.read(self.data_dir)
                if seen and seen.ready and seen.pid == process.pid:
                    # From now on the pid file identifies the server, which may outlive this object.
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
            f"{what} in {self.data_dir}; the end of its log:\n{last_lines}\n",
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
    """Run a server during the `with` block; leave no process and no file."""
    root = parent or Path(tempfile.gettempdir())
    if not can_enter(root):  # for example, a private directory of root
        root = Path("/tmp")  # noqa: S108 - a directory with a unique name is created in it
    with tempfile.TemporaryDirectory(prefix="faultline-postgres-", dir=root) as home:
        Path(home).chmod(0o711)
        server = Server(Path(home, "data"), binaries=binaries, settings=settings, ephemeral=True)
        try:
            server.start(timeout_seconds)
            yield server
        finally:
            server.stop(mode="immediate")  # the data is deleted, so no checkpoint is needed


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


PASSWORD_FILE = "faultline.password"  # noqa: S105 - a name, not a password


def create_data_directory(data_dir: Path, binaries: Path, timeout_seconds: float) -> None:
    """Create the data directory under another name and rename it when it is complete."""
    parent = data_dir.parent
    make_directory(parent)
    if data_dir.exists() and any(data_dir.iterdir()):
        raise EmbeddedServerError(
            f"{data_dir} is neither empty nor a PostgreSQL data directory",
            hint="set FAULTLINE_DATA_DIR to a directory that Faultline may fill",
        )
    if not can_enter(parent):
        raise EmbeddedServerError(
            f"PostgreSQL does not run as root, and the account nobody cannot enter {parent}",
            hint="set FAULTLINE_DATA_DIR to a directory that all users can enter, or do not run as root",
        )
    with tempfile.TemporaryDirectory(dir=parent, prefix=".faultline-initdb-") as scratch:
        staging, password = Path(scratch) / "data", Path(scratch) / "password"
        staging.mkdir(mode=0o700)
        password.touch(mode=0o600)
        password.write_text(secrets.token_urlsafe(24))
        chown_to_server_account(Path(scratch), staging, password)
        command = [
            *(f"{binaries}/initdb", "--no-sync", "--locale=C", "-E", "UTF8", "-U", "postgres"),
            *("--auth=scram-sha-256", f"--pwfile={password}", "-D", str(staging)),
        ]
        try:
            subprocess.run(
                command,
                **child_options(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout_seconds,
                check=True,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as problem:
            output = (problem.output or b"").decode(errors="replace").strip()
            raise EmbeddedServerError(
                f"{data_dir} could not be created: {problem}\n{output}\n",
                hint="set DATABASE_URL to use another PostgreSQL",
            ) from None
        password.rename(staging / PASSWORD_FILE)
        staging.rename(data_dir)


def remove_data_directory(data_dir: Path, timeout_seconds: float) -> None:
    """Delete the directory; retry while backends of a killed server still write to it."""
    deadline = time.monotonic() + timeout_seconds
    while data_dir.exists():
        try:
            shutil.rmtree(data_dir)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_SECONDS)
