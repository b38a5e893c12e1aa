"""PgBouncers in front of the test server, one of them with a single connection."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from faultline import Faultline
from faultline_drills.servers.pooler import (
    SESSION,
    TRANSACTION,
    Pooler,
    missing_requirement,
    pooler_to,
)


def require_pgbouncer() -> None:
    if missing := missing_requirement():
        pytest.skip(missing)


@pytest.fixture(scope="session", params=[TRANSACTION, SESSION])
def pooler(request: pytest.FixtureRequest, server_url: str) -> Iterator[Pooler]:
    require_pgbouncer()
    with pooler_to(server_url, mode=request.param) as pooler:
        yield pooler


@pytest.fixture
def pooled_url(pooler: Pooler, database_url: str) -> str:
    """The test's database through PgBouncer, in transaction and then in session mode."""
    return pooler.url(database_url)


@pytest.fixture
def pooled_app(pooled_url: str) -> Iterator[Faultline]:
    application = Faultline(pooled_url)
    yield application
    application.close()


@pytest.fixture(scope="session")
def bottleneck(server_url: str) -> Iterator[Pooler]:
    """Transaction mode with one connection per database, for which clients wait 1 s.

    Whatever a client leaves on the connection would reach all others.
    """
    require_pgbouncer()
    settings = {"default_pool_size": "1", "query_wait_timeout": "1"}
    with pooler_to(server_url, mode=TRANSACTION, settings=settings) as pooler:
        yield pooler


@pytest.fixture
def shared_url(bottleneck: Pooler, database_url: str) -> str:
    return bottleneck.url(database_url)
