"""A database to break: made for one drill on somebody's server, and dropped afterwards."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import conninfo, sql

from faultline.database import connect
from faultline.errors import InvalidInput


@contextmanager
def scratch_database(server_url: str, *, prefix: str = "faultline_drill") -> Iterator[str]:
    """The URL of a new, empty database on the server at `server_url`."""
    name = f"{prefix}_{secrets.token_hex(6)}"
    with connect(server_url, application_name="faultline drill") as admin:
        try:
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        except psycopg.errors.InsufficientPrivilege:
            raise InvalidInput(
                "this account may not create databases, and a drill needs one of its own",
                hint="ALTER ROLE … CREATEDB, or leave DATABASE_URL unset for an embedded server",
            ) from None
    try:
        yield conninfo.make_conninfo(server_url, dbname=name)
    finally:
        with connect(server_url, application_name="faultline drill") as admin:
            admin.execute(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
            )
