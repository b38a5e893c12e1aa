"""A stage in a database of the test's own, and a fleet of workers that is gone when the test ends."""

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
from tests.processes.stage import Stage


@pytest.fixture
def stage(conn: psycopg.Connection[Any]) -> Stage:
    return Stage.build(conn)


@pytest.fixture
def fleet(database_url: str, stage: Stage) -> Iterator[Fleet]:
    fleet = Fleet(database_url)
    yield fleet
    fleet.end()


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    """A way to the test's database that can be disturbed."""
    with proxy_to(database_url) as proxy:
        yield proxy


@pytest.fixture
def own_server(home: Path) -> Iterator[embedded.Server]:
    """A server to stop and start, with few connections. Not started."""
    server = embedded.Server(home / "data", settings={**TEST_SETTINGS, "max_connections": "40"})
    yield server
    server.stop(mode="immediate")
