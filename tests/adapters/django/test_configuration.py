"""The setting FAULTLINE, and the database that it names."""

from __future__ import annotations

from typing import Any

import pytest

from faultline import InvalidSettings
from tests.adapters.django.conftest import Configure, Shop


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"DATABSE": "default"}, "unknown key 'DATABSE'.*did you mean DATABASE"),
        ({"DATABASE": "billing"}, "database 'billing'.*has default, archive, notes"),
        ({"MORE_DATABASES": "archive"}, "must be a list of aliases"),
        ({"JOIN_TRANSACTIONS": 1}, "must be True or False, not 1"),
        ({"INSPECTOR_URL": 8001}, "must be a URL or None"),
    ],
)
def test_a_wrong_key_or_value_is_refused(
    configure: Configure, given: dict[str, Any], says: str
) -> None:
    from faultline.adapters.django.configuration import read_configuration

    configure(**given)
    with pytest.raises(InvalidSettings, match=says):
        read_configuration()


def test_the_settings_are_a_dict(django_project: None) -> None:
    from django.test import override_settings

    from faultline.adapters.django.configuration import read_configuration

    with (
        override_settings(FAULTLINE=["archive"]),
        pytest.raises(InvalidSettings, match="FAULTLINE must be a dict, not a list"),
    ):
        read_configuration()


def test_a_database_that_faultline_does_not_name_has_no_application(django_project: None) -> None:
    from faultline.adapters.django import app_for

    with pytest.raises(InvalidSettings, match=r"names no database 'notes'.*MORE_DATABASES"):
        app_for("notes")


def test_a_database_of_another_kind_is_refused(configure: Configure) -> None:
    from faultline.adapters.django import app_for

    configure(MORE_DATABASES=["notes"])
    with pytest.raises(InvalidSettings, match="'notes'] is sqlite, but Faultline needs"):
        _ = app_for("notes").database_url


def test_the_application_is_one_object_per_database(django_project: None) -> None:
    from faultline.adapters import django as adapter

    assert adapter.app is adapter.app_for() is adapter.app_for("default")
    assert adapter.app_for("archive") is not adapter.app
    with pytest.raises(AttributeError, match="has no attribute 'application_for'"):
        _ = adapter.application_for


SOCKET = {"HOST": "/run/postgresql", "PORT": "", "USER": "", "PASSWORD": "", "NAME": "shop"}
CASES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "socket": (SOCKET, {"host": "/run/postgresql", "dbname": "shop"}),
    "service": (
        {
            "OPTIONS": {"service": "shop"},
            "NAME": "",
            "HOST": "",
            "USER": "",
            "PASSWORD": "",
            "PORT": "",
        },
        {"service": "shop"},
    ),
    "options": (
        {
            **SOCKET,
            "PASSWORD": "p w'd@:/",
            "OPTIONS": {
                "sslmode": "verify-full",
                "options": "-c search_path=shop",
                "pool": True,
                "server_side_binding": True,
                "isolation_level": 2,
                "application_name": "web",
            },
        },
        {
            "host": "/run/postgresql",
            "dbname": "shop",
            "password": "p w'd@:/",
            "sslmode": "verify-full",
            "options": "-c search_path=shop",
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_url_has_what_django_connects_with(django_project: None, case: str) -> None:
    from django.db import connections

    from faultline.adapters.django.database_url import url_of
    from faultline.postgres.driver import conninfo

    given, wanted = CASES[case]
    before = dict(connections.settings["archive"])
    connections.settings["archive"].update(given)
    try:
        assert conninfo.conninfo_to_dict(url_of("archive")) == wanted
    finally:
        connections.settings["archive"].update(before)


def test_the_application_follows_the_name_of_the_test_database(
    shop: Shop, archive_url: str
) -> None:
    """Django's test runner changes it while the process runs."""
    from django.db import connections

    from faultline.adapters.django import app_for
    from faultline.testing.databases import name_of

    first = shop.app.database_url
    assert name_of(first) == connections.settings["default"]["NAME"]
    connections.settings["default"]["NAME"] = name_of(archive_url)
    try:
        assert name_of(shop.app.database_url) == name_of(app_for("archive").database_url)
    finally:
        connections.settings["default"]["NAME"] = name_of(first)
