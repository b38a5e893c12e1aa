"""A FastAPI application on the test's database, in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from faultline import Faultline
from faultline.adapters.fastapi import mounted_lifespan
from faultline.events import log
from tests.adapters.fastapi import shop


@pytest.fixture(autouse=True)
def unopened_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lifespan writes events to the logging module, for good."""
    monkeypatch.setattr(log, "_logger", None)


@pytest.fixture
def app(database_url: str) -> Iterator[Faultline]:
    """An application on the same database as the served one."""
    application = Faultline(database_url)
    yield application
    application.close()


@pytest.fixture
def queue(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faultline]:
    """The application of the shop, on the test's database."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    yield shop.queue
    shop.queue.close()


@pytest.fixture
def client(queue: Faultline, effects: str) -> Iterator[TestClient]:
    """The shop without a worker; cookies name its users."""
    host = shop.make_shop()
    host.router.lifespan_context = mounted_lifespan()
    with TestClient(host, base_url="http://shop.test") as client:
        yield client
