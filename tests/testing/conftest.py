"""Fixtures: databases made by `faultline.testing` on the suite's server."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from faultline import Faultline
from faultline.testing import Databases, using


@pytest.fixture(scope="session")
def databases(server_url: str) -> Iterator[Databases]:
    made = Databases(server_url)
    yield made
    made.close()


@pytest.fixture
def own_url(databases: Databases) -> Iterator[str]:
    url = databases.make()
    yield url
    databases.drop(url)


@pytest.fixture
def app(own_url: str) -> Iterator[Faultline]:
    """An application without a URL, connected to the test's database."""
    with using(Faultline(), own_url) as application:
        yield application


@pytest.fixture
def payments(own_url: str) -> str:
    """Two tables of the user, which show whose writes took effect."""
    with psycopg.connect(own_url) as conn:
        conn.execute("CREATE TABLE payments (invoice int, token bigint)")
        conn.execute("CREATE TABLE steps (name text PRIMARY KEY)")
    return "payments"
