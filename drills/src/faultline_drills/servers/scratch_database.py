"""Scratch databases, created on a given server and dropped after the drill."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import conninfo, sql

from faultline.errors import InvalidInput
from faultline.postgres.sessions import connect

_SCHEMAS = ("faultline", "drill", "race", "recovery")


def new_database(server_url: str, *, prefix: str = "faultline_drill") -> str:
    """Create an empty database on a server that is removed as a whole afterwards."""
    name = f"{prefix}_{secrets.token_hex(6)}"
    _administer(server_url, sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return conninfo.make_conninfo(server_url, dbname=name)


@contextmanager
def scratch_database(server_url: str, *, prefix: str = "faultline_drill") -> Iterator[str]:
    """The URL of a new, empty database on the server at `server_url`.

    An account without CREATEDB uses the database that it named: the drill's schemas are created there
    and dropped afterwards. A database that already has one of these schemas is refused.
    """
    try:
        url = new_database(server_url, prefix=prefix)
    except psycopg.errors.InsufficientPrivilege:
        with _own_schemas(server_url):
            yield server_url
        return
    try:
        yield url
    finally:
        name = sql.Identifier(str(conninfo.conninfo_to_dict(url)["dbname"]))
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name)
        _administer(server_url, drop)


@contextmanager
def _own_schemas(url: str) -> Iterator[None]:
    with connect(url, application_name="faultline drill") as conn:
        query = "SELECT nspname FROM pg_namespace WHERE nspname = ANY (%s)"
        taken = sorted(name for (name,) in conn.execute(query, [list(_SCHEMAS)]))
    if taken:
        raise InvalidInput(
            "this account may not create databases, and the database that it named already has the"
            f" schema {' and '.join(taken)}, which a drill would drop",
            hint="ALTER ROLE … CREATEDB, name an empty database, or leave the URL out",
        )
    try:
        yield
    finally:
        names = sql.SQL(", ").join(map(sql.Identifier, _SCHEMAS))
        _administer(url, sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(names))


def _administer(url: str, statement: sql.Composed) -> None:
    with connect(url, application_name="faultline drill") as admin:
        admin.execute(statement)
