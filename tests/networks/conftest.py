"""A PostgreSQL on a simulated host, for tests that cut hosts off from it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from faultline_drills.servers.hosted_server import HostedServer, server_on_a_host
from faultline_drills.servers.hosts import missing_requirement


@pytest.fixture(scope="session")
def hosted() -> Iterator[HostedServer]:
    require_hosts()
    with server_on_a_host(settings={"fsync": "off"}) as server:
        yield server


def require_hosts() -> None:
    if missing := missing_requirement():
        pytest.skip(missing)
