"""Starts the servers of a run: one PostgreSQL and one Redis, at default settings."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from faultline import embedded

_REPORTED = (
    *("server_version", "synchronous_commit", "fsync", "full_page_writes", "shared_buffers"),
    *("max_wal_size", "checkpoint_timeout", "max_connections", "autovacuum", "wal_level", "jit"),
)
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class PostgresServer:
    """A PostgreSQL; the account at `url` may create databases."""

    url: str
    settings: dict[str, str]
    is_own: bool = False  # started for this run

    @property
    def version(self) -> str:
        return self.settings["server_version"]


@dataclass(frozen=True)
class Redis:
    port: int
    version: str

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self, *words: str) -> str:
        """Send one command; return the first line of the reply without its type."""
        message = [f"*{len(words)}"]
        for word in words:
            message += [f"${len(word.encode())}", word]
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.sendall(("\r\n".join(message) + "\r\n").encode())
            reply = connection.makefile("rb").readline().decode().strip()
        if reply.startswith("-"):
            raise ValueError(f"Redis refused {words[0]}: {reply[1:]}")
        return reply[1:]


@contextlib.contextmanager
def postgres_server(database_url: str | None) -> Iterator[PostgresServer]:
    """Yield the given server, else a temporary embedded one."""
    with contextlib.ExitStack() as stack:
        url = database_url or stack.enter_context(embedded.temporary_server()).url
        yield PostgresServer(url, _read_settings(url), is_own=database_url is None)


@contextlib.contextmanager
def redis_server(timeout_seconds: float = 10.0) -> Iterator[Redis | None]:
    """Start a Redis at default settings; yield None if it is not installed."""
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="faultline-redis-") as folder:
        port = _free_port()
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            yield _wait_for_redis(program, port, timeout_seconds)
        finally:
            process.terminate()
            process.wait(10)


@contextlib.contextmanager
def database_of(server: PostgresServer, peer: str) -> Iterator[str]:
    """Create a database with the table of `write` jobs; drop it afterwards."""
    name = f"bench_{peer}_{secrets.token_hex(4)}".replace("-", "_")
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            url = _url_of(server.url, name)
            with psycopg.connect(url, autocommit=True) as conn:
                conn.execute("CREATE TABLE bench_effects (id bigserial PRIMARY KEY, n bigint)")
            yield url
        finally:
            # Some peers keep a second database, named after the first.
            query = "SELECT datname FROM pg_database WHERE starts_with(datname, %s)"
            for (database,) in admin.execute(query, [name]).fetchall():
                drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
                admin.execute(drop.format(sql.Identifier(database)))


def vacuum_and_checkpoint(conn: psycopg.Connection[tuple[object, ...]]) -> None:
    """Start every measurement with fresh statistics and no dirty pages."""
    conn.execute("VACUUM (ANALYZE, SKIP_LOCKED)")
    with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
        conn.execute("CHECKPOINT")


def _url_of(server_url: str, database: str) -> str:
    """Return a database's URL; some drivers read no other connection strings."""
    parts = urlsplit(server_url)
    if parts.scheme not in ("postgresql", "postgres"):
        raise ValueError("--database-url must be a URL: postgresql://…")
    return parts._replace(path=f"/{database}").geturl()


def _read_settings(url: str) -> dict[str, str]:
    query = "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY (%s)"
    with psycopg.connect(url) as conn:
        rows: list[tuple[str, str]] = conn.execute(query, [list(_REPORTED)]).fetchall()
    found = dict(rows)
    return {name: found[name] for name in _REPORTED if name in found}


def _wait_for_redis(program: str, port: int, timeout_seconds: float) -> Redis:
    result = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10)
    version = next((word[2:] for word in result.stdout.split() if word.startswith("v=")), "unknown")
    redis, deadline = Redis(port, version), time.monotonic() + timeout_seconds
    while True:
        try:
            redis.command("PING")
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_SECONDS)
        else:
            return redis


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
