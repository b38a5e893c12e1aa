"""One API server with default settings, on a database of its own, with keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import psycopg
import pytest

from tests.api.served import Served, client_of, make_key, served
from tests.conftest import NewDatabase


@pytest.fixture(scope="session")
def api_url(new_database: NewDatabase, template: str) -> Iterator[str]:
    with new_database(template) as url:
        yield url


@pytest.fixture(scope="session")
def server(api_url: str) -> Iterator[Served]:
    """Without a key cache: a key that a test revokes is invalid in the next request."""
    limits = ("--key-cache-seconds", "0", "--wrong-keys-per-second", "0", "--wait-seconds", "0.05")
    with served(api_url, *limits) as server:
        yield server


@pytest.fixture(scope="session")
def client(server: Served, api_url: str) -> Iterator[httpx2.Client]:
    """May do everything."""
    with client_of(server, make_key(api_url)) as client:
        yield client


# Every size so small that a test can reach it.
SMALL = {
    "body-bytes": "2000",
    "header-bytes": "2000",
    "json-depth": "3",
    "batch-jobs": "3",
    "page-size": "5",
    "page-scan": "10",
}
# Every timeout is so short that a test can wait for its end. A server of its own has them, because on a
# busy machine well-behaved clients may exceed them as well.
IMPATIENT = {"header-seconds": "1", "send-seconds": "1", "request-seconds": "3"}


@pytest.fixture(scope="session")
def small_url(new_database: NewDatabase, template: str) -> Iterator[str]:
    """With few jobs in it: its pages are walked to the end."""
    with new_database(template) as url:
        yield url


@pytest.fixture(scope="session")
def small(small_url: str) -> Iterator[Served]:
    with served(small_url, *[f"--{name}={value}" for name, value in SMALL.items()]) as server:
        yield server


@pytest.fixture(scope="session")
def guest(small: Served, small_url: str) -> Iterator[httpx2.Client]:
    """Of the small server; may do everything."""
    with client_of(small, make_key(small_url)) as client:
        yield client


@pytest.fixture(scope="session")
def impatient(small_url: str) -> Iterator[Served]:
    with served(small_url, *[f"--{name}={value}" for name, value in IMPATIENT.items()]) as server:
        yield server


@pytest.fixture
def api_conn(api_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(api_url, autocommit=True) as conn:
        yield conn
