"""The setting FAULTLINE of a Django project."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS

from faultline.errors import InvalidSettings
from faultline.suggestions import did_you_mean


@dataclass(frozen=True, slots=True)
class Configuration:
    """The keys of FAULTLINE, in lower case, with their defaults."""

    database: str = DEFAULT_DB_ALIAS
    """The alias of the database of `faultline.adapters.django.app`."""

    more_databases: tuple[str, ...] = ()
    """Aliases of further databases with jobs, for `app_for(alias)`."""

    imports: tuple[str, ...] = ()
    """Modules with tasks, besides the `tasks` modules of installed apps."""

    join_transactions: bool = True
    """Run the application's methods on Django's connection, in the transaction that is open there."""

    migrate: bool = True
    """Let `manage.py migrate` install and upgrade Faultline's schema too."""

    inspector_url: str | None = None
    """Where the inspector is served, for links from the admin."""

    worker: Mapping[str, Any] = field(default_factory=dict)
    """Defaults for the options of `manage.py faultline_worker`."""

    @property
    def databases(self) -> tuple[str, ...]:
        return (self.database, *self.more_databases)


_TYPES = {
    "database": (str, "an alias of DATABASES"),
    "more_databases": (list | tuple, "a list of aliases of DATABASES"),
    "imports": (list | tuple, "a list of modules"),
    "join_transactions": (bool, "True or False"),
    "migrate": (bool, "True or False"),
    "inspector_url": (str | None, "a URL or None"),
    "worker": (dict, "a dict of options, such as {'concurrency': 4}"),
}


def read_configuration() -> Configuration:
    """The project's FAULTLINE; InvalidSettings if a key or a value is wrong."""
    given = getattr(settings, "FAULTLINE", {})
    if not isinstance(given, dict):
        raise InvalidSettings(f"FAULTLINE must be a dict, not a {type(given).__name__}")
    known = [each.name.upper() for each in fields(Configuration)]
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known:
            hint = did_you_mean(str(key), known) or f"the keys are {', '.join(known)}"
            raise InvalidSettings(f"FAULTLINE has an unknown key {key!r}", hint=hint)
        expected, what = _TYPES[key.lower()]
        if not isinstance(value, expected):
            raise InvalidSettings(f"FAULTLINE[{key!r}] must be {what}, not {value!r}")
        values[key.lower()] = tuple(value) if isinstance(value, list) else value
    configuration = Configuration(**values)
    for alias in configuration.databases:
        if alias not in settings.DATABASES:
            raise InvalidSettings(
                f"FAULTLINE names the database {alias!r}, which DATABASES does not have",
                hint=f"DATABASES has {', '.join(settings.DATABASES) or 'none'}",
            )
    return configuration
