"""The settings of the shop, made once per process when the first test needs them."""

from __future__ import annotations

from typing import Any

import django
from django.conf import settings

from faultline.testing.databases import name_of
from tests.conftest import url_of

BACKEND = "faultline.adapters.django.backend.FaultlineBackend"
NAME = "not_chosen_yet"  # each test chooses its own database


def configure(server_url: str) -> None:
    """Configure Django; a second call changes nothing."""
    if not settings.configured:
        url = url_of(server_url, NAME)
        settings.configure(**settings_of(url, url))
        django.setup()


def settings_of(default_url: str, archive_url: str) -> dict[str, Any]:
    return {
        "SECRET_KEY": "of the tests",
        "USE_TZ": True,
        "ALLOWED_HOSTS": ["testserver"],
        "ROOT_URLCONF": "tests.adapters.django.urls",
        "DEFAULT_AUTO_FIELD": "django.db.models.BigAutoField",
        "DATABASES": {
            "default": database(default_url),
            "archive": database(archive_url),
            "notes": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
        },
        "TASKS": {
            "default": {"BACKEND": BACKEND, "QUEUES": ["default", "mail"]},
            "retrying": {
                "BACKEND": BACKEND,
                "OPTIONS": {"retry_errors": True, "max_attempts": 2},
            },
            "archive": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"database": "archive"}},
        },
        "FAULTLINE": {"MORE_DATABASES": ["archive"]},
        "INSTALLED_APPS": [
            "django.contrib.admin",
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.messages",
            "django.contrib.sessions",
            "faultline.adapters.django",
            "tests.adapters.django.shop",
        ],
        "MIDDLEWARE": [
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        "PASSWORD_HASHERS": ["django.contrib.auth.hashers.MD5PasswordHasher"],
        "TEMPLATES": [
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
    }


def database(url: str) -> dict[str, Any]:
    """An entry of DATABASES for a URL of the suite's server."""
    from faultline.postgres.driver import conninfo

    parts = conninfo.conninfo_to_dict(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name_of(url),
        "USER": parts.get("user", ""),
        "PASSWORD": parts.get("password", ""),
        "HOST": parts.get("host", ""),
        "PORT": parts.get("port", ""),
    }
