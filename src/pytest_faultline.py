"""The pytest plugin: fixtures for testing handlers on a real PostgreSQL.

This module is outside of the package because pytest loads it in every run in the same environment, and any
import of `faultline` would import a database driver. Faultline is imported, and a server started, only when
a test uses one of the fixtures.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from faultline import Faultline
    from faultline.testing import Databases


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("faultline_app", "The application of the fixture faultline_app, as module:name.")


@pytest.fixture(scope="session")
def faultline_databases() -> Iterator[Databases]:
    """Creates databases with Faultline's schema.

    On the server at FAULTLINE_TEST_DATABASE_URL, else on an embedded server that ends with this process.
    """
    from faultline.testing import temporary_databases

    with temporary_databases() as databases:
        yield databases


@pytest.fixture
def faultline_database(
    faultline_databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The URL of a new database with Faultline's schema; DATABASE_URL is set to it."""
    url = faultline_databases.make()
    monkeypatch.delenv("DATABASE_URL_FILE", raising=False)
    monkeypatch.setenv("DATABASE_URL", url)
    yield url
    faultline_databases.drop(url)


@pytest.fixture
def faultline_app(faultline_database: str, pytestconfig: pytest.Config) -> Iterator[Faultline]:
    """Your application, connected to the test's database.

    The setting `faultline_app` in pytest's configuration names it.
    """
    named = str(pytestconfig.getini("faultline_app"))
    module, colon, attribute = named.partition(":")
    if not (module and colon and attribute):
        raise pytest.UsageError('set faultline_app = "module:name" in your pytest configuration')
    from faultline.testing import using

    with using(getattr(importlib.import_module(module), attribute), faultline_database) as app:
        yield app
