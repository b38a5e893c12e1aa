"""A PgBouncer in front of PostgreSQL: started, paused, redirected, killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
from psycopg import conninfo

from faultline.embedded.process import POLL_SECONDS, chown_to_server_account, spawn
from faultline.errors import FaultlineError

TRANSACTION, SESSION = "transaction", "session"
_PROGRAM_FOLDERS = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
_START_SECONDS = 30.0
# docs/networks.md has measurements with these; all other settings are PgBouncer's defaults.
_DEFAULTS = {
    "auth_type": "scram-sha-256",
    "default_pool_size": "20",
    "max_client_conn": "300",
    "query_wait_timeout": "20",
    "server_login_retry": "1",
}


class PoolerFailed(FaultlineError):
    """PgBouncer could not be started."""

    code = "pooler_failed"


def missing_requirement() -> str | None:
    """What this machine lacks for it; None if nothing."""
    if _program() is None:
        return "needs PgBouncer: apt-get install pgbouncer (its service is not used)"
    return None


def _program() -> str | None:
    return shutil.which("pgbouncer", path=_PROGRAM_FOLDERS)


class Pooler:
    """One PgBouncer for every database of a server, run by an unprivileged account.

    It keeps its port when it is started again.
    """

    def __init__(
        self, server_url: str, home: Path, *, mode: str, settings: Mapping[str, str] | None = None
    ) -> None:
        self._server = conninfo.conninfo_to_dict(server_url)
        self._settings = {"pool_mode": mode, **_DEFAULTS, **(settings or {})}
        self._port = _free_port()
        self._config = home / "pgbouncer.ini"
        self._log = home / "pgbouncer.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._write(home)

    def url(self, database_url: str) -> str:
        """The URL of this database through the pooler."""
        return conninfo.make_conninfo(database_url, host="127.0.0.1", port=self._port)

    @property
    def pid(self) -> int | None:
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    def start(self) -> None:
        program = _program()
        if program is None:
            raise PoolerFailed("PgBouncer is not installed", hint=missing_requirement())
        deadline = time.monotonic() + _START_SECONDS
        while (output := self._launch(program, deadline)) is not None:
            # Another process may have used the port for a moment while PgBouncer was down.
            if "in use" not in output or time.monotonic() > deadline:
                raise PoolerFailed(f"PgBouncer did not start; its output:\n{output}")
            time.sleep(POLL_SECONDS * 10)

    def kill(self) -> None:
        """SIGKILL: every connection through it ends."""
        self._signal(signal.SIGKILL)  # ends a frozen one too
        if self._process is not None:
            self._process.wait(10)

    def freeze(self) -> None:
        """SIGSTOP: nothing passes, and no connection is closed."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def redirect(self, server_url: str) -> None:
        """Connect to another server with the same accounts from now on, by RELOAD."""
        self._server = conninfo.conninfo_to_dict(server_url)
        self._write(self._config.parent)
        self.tell("RELOAD")

    def tell(self, command: str) -> list[dict[str, Any]]:
        """Say something to its console: PAUSE, RESUME, SHOW SERVERS."""
        with (
            psycopg.connect(**self._console(), autocommit=True) as conn,
            psycopg.ClientCursor(conn, row_factory=psycopg.rows.dict_row) as cursor,
        ):
            cursor.execute(command.encode())
            return cursor.fetchall() if cursor.description else []

    def _launch(self, program: str, deadline: float) -> str | None:
        """Start it once: None as soon as it answers, or its output before it gave up."""
        with self._log.open("wb") as log:
            command = [program, "--quiet", str(self._config)]
            self._process = spawn(command, log, {}, dies_with_parent=True)
        while time.monotonic() < deadline and self.pid is not None:
            with contextlib.suppress(psycopg.OperationalError):
                self.tell("SHOW VERSION")
                return None
            time.sleep(POLL_SECONDS)
        self.kill()
        return self._log.read_text(errors="replace")

    def _console(self) -> dict[str, Any]:
        return {
            "host": "127.0.0.1",
            "port": self._port,
            "dbname": "pgbouncer",
            "user": self._server.get("user"),
            "password": self._server.get("password"),
        }

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)  # does nothing after its end

    def _write(self, home: Path) -> None:
        user, password = self._server.get("user"), self._server.get("password", "")
        users = home / "users.txt"
        users.touch(mode=0o600)
        escaped = str(password).replace('"', '""')
        users.write_text(f'"{user}" "{escaped}"\n')
        own = {
            "listen_addr": "127.0.0.1",
            "listen_port": str(self._port),
            "unix_socket_dir": "",
            "auth_file": str(users),
            "admin_users": str(user),
        }
        lines = [f"{name} = {value}" for name, value in (self._settings | own).items()]
        host, port = self._server.get("host", "127.0.0.1"), self._server.get("port", "5432")
        server = f"* = host={host} port={port}"
        self._config.write_text("\n".join(["[databases]", server, "[pgbouncer]", *lines, ""]))
        self._log.touch()
        chown_to_server_account(home, users, self._config, self._log)


@contextlib.contextmanager
def pooler_to(
    server_url: str, *, mode: str = TRANSACTION, settings: Mapping[str, str] | None = None
) -> Iterator[Pooler]:
    """A PgBouncer for the length of the `with` block; leaves neither process nor file."""
    with tempfile.TemporaryDirectory(prefix="faultline-pgbouncer-", dir="/tmp") as home:
        pooler = Pooler(server_url, Path(home), mode=mode, settings=settings)
        try:
            pooler.start()
            yield pooler
        finally:
            pooler.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
