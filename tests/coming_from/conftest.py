"""A page in a folder on the test's database; a Redis server for the run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from redis import Redis
from redis.exceptions import RedisError

from tests.coming_from.migration import Migration
from tests.waiting import LIMIT_SECONDS, wait_until

Open = Callable[..., Migration]


@pytest.fixture
def open_page(tmp_path: Path, database_url: str, conn: psycopg.Connection[Any]) -> Open:
    """Opens a page of docs/coming-from: its files are written, its tables created."""

    def open_page(page: str, **environment: str) -> Migration:
        return Migration(page, tmp_path, conn, DATABASE_URL=database_url, **environment)

    return open_page


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Redis server of the run, without a database number."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    folder = tmp_path_factory.mktemp("redis")
    socket = folder / "redis.sock"
    options = ["--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(folder)]
    server = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: _answers(socket), "an answer of Redis")
        yield f"unix://{socket}"
    finally:
        server.terminate()
        server.wait(LIMIT_SECONDS)


@pytest.fixture
def redis_url(redis_server: str) -> Iterator[str]:
    """A Redis without keys."""
    yield redis_server
    with Redis.from_url(redis_server) as client:
        client.flushall()


def _answers(socket: Path) -> bool:
    try:
        with Redis(unix_socket_path=str(socket)) as client:
            return bool(client.ping())
    except RedisError:
        return False
