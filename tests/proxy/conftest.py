"""A proxy in front of the test's database, and sessions through it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from faultline_drills.proxy import Proxy, proxy_to

Through = Callable[..., psycopg.Connection[Any]]


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    with proxy_to(database_url) as proxy:
        yield proxy


@pytest.fixture
def through(proxy: Proxy) -> Iterator[Through]:
    """Makes autocommit connections through the proxy."""
    with contextlib.ExitStack() as opened:

        def make(application: str = "test", **options: Any) -> psycopg.Connection[Any]:
            connection = psycopg.connect(
                proxy.url, autocommit=True, application_name=application, **options
            )
            opened.callback(connection.close)
            return connection

        yield make
