"""Fixtures: an application, its database, and a table whose rows are the effects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest

from faultline import Faultline
from faultline.testing import Databases, using

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine
    from sqlalchemy.orm import Session, sessionmaker


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


@pytest.fixture
def engine(own_url: str) -> Iterator[Engine]:
    from tests.adapters.alchemy import engine_for  # environments of Django do not have it

    made = engine_for(own_url, pool_pre_ping=True)
    yield made
    made.dispose()


@pytest.fixture
def sessions(app: Faultline, engine: Engine) -> sessionmaker[Session]:
    from sqlalchemy.orm import sessionmaker

    from faultline.adapters.sqlalchemy import use_sessions

    maker = sessionmaker(engine)
    use_sessions(app, maker)
    return maker
