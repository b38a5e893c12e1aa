"""Databases for tests: copies of a migrated template, dropped after the test."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from faultline.embedded import temporary_server
from faultline.errors import InvalidInput
from faultline.postgres.driver import InsufficientPrivilege, conninfo, sql
from faultline.postgres.migrate import migrate
from faultline.postgres.sessions import Connection, connect, run
from faultline.statements import epochs

SERVER_VARIABLE = "FAULTLINE_TEST_DATABASE_URL"
MARK = "made by faultline.testing"
_PREFIX = "faultline_test"
# A crash of the machine may lose the data, but a commit that was reported stays visible.
_SERVER_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    # A session that was stopped during its login delays every DROP DATABASE for this long.
    "authentication_timeout": "10s",
}
_MEMORY = Path("/dev/shm")  # noqa: S108 - a new directory is created in it
_MIN_FREE_MEMORY_BYTES = 2 * 2**30


class Databases:
    """Creates databases on one server as copies of a template with the schema."""

    def __init__(self, server_url: str) -> None:
        self.server_url = server_url
        self._template: str | None = None

    def make(self) -> str:
        """Create a database with only Faultline's schema, and return its URL."""
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
                    # The template is only copied: each copy gets its own epoch.
                    run(conn, epochs.forget_database())
            except BaseException:
                drop_database(admin, name)
                raise
        return name


@contextlib.contextmanager
def temporary_databases() -> Iterator[Databases]:
    """Use the server at FAULTLINE_TEST_DATABASE_URL, else a temporary embedded one."""
    with contextlib.ExitStack() as stack:
        url = os.environ.get(SERVER_VARIABLE)
        if not url:
            server = temporary_server(settings=_SERVER_SETTINGS, parent=_memory_directory())
            url = stack.enter_context(server).url
        databases = Databases(url)
        stack.callback(databases.close)
        yield databases


@contextlib.contextmanager
def temporary_database() -> Iterator[str]:
    """Yield the URL of a database that exists until the block ends."""
    with temporary_databases() as databases:
        url = databases.make()
        try:
            yield url
        finally:
            databases.drop(url)


def require_test_database(conn: Connection) -> None:
    """Refuse to change the times of, or to overwrite, a database that is not a test's."""
    row = conn.execute(
        "SELECT shobj_description(oid, 'pg_database') FROM pg_database"
        " WHERE datname = current_database()"
    ).fetchone()
    if row is None or row[0] != MARK:
        raise InvalidInput(
            f"{conn.info.dbname} was not made by faultline.testing, so it is not changed",
            hint="use the fixture faultline_database, or faultline.testing.temporary_database()",
        )


# ── administration ───────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def administration(server_url: str) -> Iterator[Connection]:
    """Open a session outside of the test databases, which can copy and drop them."""
    with connect(server_url, application_name="faultline testing") as conn:
        yield conn


def copy_database(admin: Connection, source: str, name: str) -> None:
    """Create `name` as a copy of `source`, which must have no open sessions."""
    statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
    try:
        admin.execute(statement.format(sql.Identifier(name), sql.Identifier(source)))
    except InsufficientPrivilege:
        raise InvalidInput(
            "this account may not create databases, but every test needs its own database",
            hint=f"run ALTER ROLE … CREATEDB, or unset {SERVER_VARIABLE} to use an embedded server",
        ) from None
    comment = sql.SQL("COMMENT ON DATABASE {} IS {}")
    admin.execute(comment.format(sql.Identifier(name), sql.Literal(MARK)))


def drop_database(admin: Connection, name: str) -> None:
    admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def url_of(url: str, database: str) -> str:
    """Return `url` with another database name."""
    if "://" in url:
        return urlsplit(url)._replace(path=f"/{database}").geturl()
    return conninfo.make_conninfo(url, dbname=database)


def name_of(url: str) -> str:
    return str(conninfo.conninfo_to_dict(url)["dbname"])


def _new_name() -> str:
    return f"{_PREFIX}_{secrets.token_hex(6)}"


def _memory_directory() -> Path | None:
    """Return /dev/shm if it has room: copying databases there takes half the time."""
    if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _MIN_FREE_MEMORY_BYTES:
        return _MEMORY
    return None
