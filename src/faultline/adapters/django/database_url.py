"""The URL of a database of Django, for Faultline's own connections."""

from __future__ import annotations

import re
from urllib.parse import quote, urlencode

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from faultline.errors import InvalidSettings
from faultline.postgres.driver import libpq_parameters

# Django's own: a worker's connections have other names, and all of them use UTF-8.
_OWN = frozenset({"application_name", "client_encoding"})
_PLAIN_HOST = re.compile(r"[\w.-]+")


def url_of(alias: str) -> str:
    """Where Django connects to for `alias`, with its test database if tests run."""
    wrapper = connections[alias]
    if wrapper.vendor != "postgresql":
        raise InvalidSettings(
            f"DATABASES[{alias!r}] is {wrapper.vendor}, but Faultline needs PostgreSQL",
            hint="name a database on PostgreSQL in FAULTLINE['DATABASE']",
        )
    try:
        given = wrapper.get_connection_params()
    except ImproperlyConfigured as error:
        raise InvalidSettings(str(error)) from error
    names = libpq_parameters() - _OWN
    parts = {name: str(value) for name, value in given.items() if name in names}
    place = ""
    if _PLAIN_HOST.fullmatch(parts.get("host", "")):  # not a socket, nor several hosts
        place = parts.pop("host")
        if "port" in parts:
            place += f":{parts.pop('port')}"
    account = quote(parts.pop("user", ""), safe="")
    if "password" in parts:
        account += f":{quote(parts.pop('password'), safe='')}"
    name = quote(parts.pop("dbname", ""), safe="")
    more = f"?{urlencode(parts, quote_via=quote)}" if parts else ""
    return f"postgresql://{account + '@' if account else ''}{place}/{name}{more}"
