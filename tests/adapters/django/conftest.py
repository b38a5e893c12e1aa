"""Fixtures: a Django project whose databases are each test's own.

Settings of Django belong to the process. They are made by the first test that needs them, and the modules of
the shop are imported after that, so that no other test of the suite has a configured Django.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from asgiref.sync import sync_to_async

from faultline.testing.databases import MARK, administration, name_of
from tests.conftest import NewDatabase

if TYPE_CHECKING:
    from faultline.adapters.django import DjangoFaultline


@dataclass
class Shop:
    """The project, on a database of the test's own."""

    app: DjangoFaultline
    tasks: Any  # the modules
    models: Any
    url: str

    def pays(self, *invoices: int) -> bool:
        """Whether these invoices, and no others, are paid."""
        with psycopg.connect(self.url) as conn:
            found = conn.execute("SELECT invoice FROM shop_payment ORDER BY 1").fetchall()
        return [invoice for (invoice,) in found] == list(invoices)


def _point(alias: str, name: str) -> None:
    """Let Django, in all threads, use a database of this name from now on."""
    from django.db import connections

    connections[alias].close()
    connections.settings[alias]["NAME"] = name


@pytest.fixture(scope="session")
def django_project(server_url: str) -> None:
    from tests.adapters.django.project import configure

    configure(server_url)


@pytest.fixture(scope="session")
def django_template(django_project: None, new_database: NewDatabase) -> Iterator[str]:
    """The name of a database with all tables, made by Django's own command."""
    from django.core.management import call_command

    with new_database() as url:
        _point("default", name_of(url))
        call_command("migrate", run_syncdb=True, verbosity=0)
        _point("default", "")
        with psycopg.connect(url, autocommit=True) as conn:
            from faultline.postgres.sessions import run
            from faultline.statements import epochs

            run(conn, epochs.forget_database())  # its copies are claimed from
        yield name_of(url)


@pytest.fixture
def shop(django_template: str, new_database: NewDatabase, server_url: str) -> Iterator[Shop]:
    from django.db import connections

    from faultline.adapters.django import app

    with new_database(django_template) as url:
        with administration(server_url) as admin:
            admin.execute(f"COMMENT ON DATABASE {name_of(url)} IS '{MARK}'")
        _point("default", name_of(url))
        models = importlib.import_module("tests.adapters.django.shop.models")
        tasks = importlib.import_module("tests.adapters.django.shop.tasks")
        yield Shop(app, tasks, models, url)
        app.close()
        connections.close_all()
        # The thread of async handlers' ORM calls lives as long as the process.
        asyncio.run(sync_to_async(connections.close_all)())
        _point("default", "")


@pytest.fixture
def archive_url(shop: Shop, django_template: str, new_database: NewDatabase) -> Iterator[str]:
    """A second database, to which the alias `archive` leads."""
    with new_database(django_template) as url:
        _point("archive", name_of(url))
        yield url
        _point("archive", "")


Configure = Callable[..., None]


@pytest.fixture
def configure(django_project: None) -> Iterator[Configure]:
    """Replaces keys of FAULTLINE until the test ends."""
    from django.conf import settings
    from django.test import override_settings

    changes: list[Any] = []

    def change(**values: Any) -> None:
        override = override_settings(FAULTLINE={**settings.FAULTLINE, **values})
        override.enable()
        changes.append(override)

    yield change
    for override in reversed(changes):
        override.disable()
