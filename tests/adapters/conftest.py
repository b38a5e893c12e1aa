"""Fixtures: an application, its database, and a table whose rows are the effects."""

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
    with psycopg.connect(url) as conn:
        conn.execute("CREATE TABLE payments (id serial PRIMARY KEY, invoice int NOT NULL)")
    yield url
    databases.drop(url)


@pytest.fixture
def app(own_url: str) -> Iterator[Faultline]:
    with using(Faultline(), own_url) as application:
        yield application
