"""Databases for tests: each one a copy of a database that has the schema, gone when the test is over."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg import conninfo, sql

from faultline.embedded import temporary_server
from faultline.errors import InvalidInput
from faultline.postgres.migrate import migrate
from faultline.postgres.sessions import Connection, connect, run
from faultline.statements import epochs

SERVER_VARIABLE = "FAULTLINE_TEST_DATABASE_URL"
MARK = "made by faultline.testing"
_PREFIX = "faultline_test"
# A test's server may lose everything with the machine, but never a commit that it has reported.
_SERVER_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    # A zombie that was stopped while it logged in holds up every DROP DATABASE for that long.
    "authentication_timeout": "10s",
}
_MEMORY = Path("/dev/shm")  # noqa: S108 - a directory of our own is made in it
_ROOM_IN_MEMORY_BYTES = 2 * 2**30


class Databases:
    """Makes databases on one server. The schema is installed once, and copied from then on."""

    def __init__(self, server_url: str) -> None:
        self.server_url = server_url
        self._template: str | None = None

    def make(self) -> str:
        """The URL of a new database that has the schema, and nothing else in it."""
        if self._template is None:
            self._template = self._make_template()
        name = _new_name()
        with administration(self.server_url) as admin:
            copy_database(admin, self._template, name)
        return url_of(self.server_url, name)

    def drop(self, url: str) -> None:
        with administration(self.server_url) as admin:
            drop_database(admin, name_of(url))

    def close(self) -> None:
        if self._template is not None:
            self.drop(url_of(self.server_url, self._template))
            self._template = None

    def _make_template(self) -> str:
        name = f"{_new_name()}_template"
        with administration(self.server_url) as admin:
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            try:
                migrate(url_of(self.server_url, name))
                with connect(url_of(self.server_url, name)) as conn:
                    run(conn, epochs.forget_database())  # it is there to be copied
            except BaseException:
                drop_database(admin, name)
                raise
        return name


@contextlib.contextmanager
def temporary_databases() -> Iterator[Databases]:
    """On the server that FAULTLINE_TEST_DATABASE_URL names, else on one that lives as long as the block."""
    with contextlib.ExitStack() as stack:
        url = os.environ.get(SERVER_VARIABLE)
        if not url:
            server = temporary_server(settings=_SERVER_SETTINGS, parent=_roomy_memory())
            url = stack.enter_context(server).url
        databases = Databases(url)
        stack.callback(databases.close)
        yield databases


@contextlib.contextmanager
def temporary_database() -> Iterator[str]:
    """One database for the length of the block: its URL."""
    with temporary_databases() as databases:
        url = databases.make()
        try:
            yield url
        finally:
            databases.drop(url)


def require_test_database(conn: Connection) -> None:
    """Refuse to move the clock of, or to overwrite, anything but a test's own database."""
    row = conn.execute(
        "SELECT shobj_description(oid, 'pg_database') FROM pg_database"
        " WHERE datname = current_database()"
    ).fetchone()
    if row is None or row[0] != MARK:
        raise InvalidInput(
            f"{conn.info.dbname} was not made by faultline.testing, and is left alone",
            hint="use the fixture faultline_database, or faultline.testing.temporary_database()",
        )


# ── administration ───────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def administration(server_url: str) -> Iterator[Connection]:
    """A session outside of all test databases, since none can be copied or dropped from within."""
    with connect(server_url, application_name="faultline testing") as conn:
        yield conn


def copy_database(admin: Connection, source: str, name: str) -> None:
    """`source` must be without sessions."""
    statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
    try:
        admin.execute(statement.format(sql.Identifier(name), sql.Identifier(source)))
    except psycopg.errors.InsufficientPrivilege:
        raise InvalidInput(
            "this account may not create databases, and every test needs one of its own",
            hint=f"ALTER ROLE … CREATEDB, or leave {SERVER_VARIABLE} unset for a server of its own",
        ) from None
    comment = sql.SQL("COMMENT ON DATABASE {} IS {}")
    admin.execute(comment.format(sql.Identifier(name), sql.Literal(MARK)))


def drop_database(admin: Connection, name: str) -> None:
    admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def url_of(url: str, database: str) -> str:
    """The same server and account, another database."""
    if "://" in url:
        return urlsplit(url)._replace(path=f"/{database}").geturl()
    return conninfo.make_conninfo(url, dbname=database)


def name_of(url: str) -> str:
    return str(conninfo.conninfo_to_dict(url)["dbname"])


def _new_name() -> str:
    return f"{_PREFIX}_{secrets.token_hex(6)}"


def _roomy_memory() -> Path | None:
    """Copies of databases are many small files: in memory they take half the time."""
    if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM_IN_MEMORY_BYTES:
        return _MEMORY
    return None
