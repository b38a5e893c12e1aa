"""The database that a test observes, and processes that end with the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from faultline import embedded
from faultline_drills.proxy import Proxy, proxy_to
from tests.conftest import TEST_SETTINGS
from tests.processes.fleet import Fleet
from tests.processes.observed_database import ObservedDatabase
from tests.processes.project import Project


@pytest.fixture
def database(conn: psycopg.Connection[Any]) -> ObservedDatabase:
    return ObservedDatabase.build(conn)


@pytest.fixture
def fleet(database_url: str, database: ObservedDatabase) -> Iterator[Fleet]:
    fleet = Fleet(database_url)
    yield fleet
    fleet.end()


@pytest.fixture
def project(tmp_path: Path, database_url: str) -> Iterator[Project]:
    """A folder for a user's modules, with processes that run there."""
    made = Project(tmp_path, database_url)
    yield made
    made.end()


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    """A proxy in front of the test's database that can inject faults."""
    with proxy_to(database_url) as proxy:
        yield proxy


@pytest.fixture
def own_server(home: Path) -> Iterator[embedded.Server]:
    """A server with few connections that the test starts and stops; not started yet."""
    server = embedded.Server(home / "data", settings={**TEST_SETTINGS, "max_connections": "40"})
    yield server
    server.stop(mode="immediate")
