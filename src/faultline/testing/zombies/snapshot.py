"""A copy of the test's database, from which every run starts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from faultline.app import Faultline
from faultline.postgres.sessions import Connection, connect, run
from faultline.statements import epochs
from faultline.testing.application import close_connections
from faultline.testing.databases import (
    administration,
    copy_database,
    drop_database,
    name_of,
    require_test_database,
    url_of,
)
from faultline.testing.zombies.database_control import end_other_sessions

_MAINTENANCE = "postgres"


class DatabaseSnapshot:
    """Saves and restores a database under the same name, so that its URL stays valid."""

    def __init__(self, app: Faultline, admin: Connection, name: str) -> None:
        self._app = app
        self._admin = admin
        self._name = name
        self._copy = f"{name}_snapshot"

    def save(self) -> None:
        copy_database(self._admin, self._name, self._copy)

    def restore(self) -> None:
        close_connections(self._app)
        drop_database(self._admin, self._name)
        copy_database(self._admin, self._copy, self._name)

    def discard(self) -> None:
        drop_database(self._admin, self._copy)


@contextlib.contextmanager
def database_snapshot(app: Faultline) -> Iterator[DatabaseSnapshot]:
    """Save the database, and restore it when the block ends.

    Ends all sessions in the database, because PostgreSQL does not copy a database with open sessions.
    """
    url = app.database_url
    close_connections(app)
    with connect(url, application_name="faultline testing") as conn:
        require_test_database(conn)
        end_other_sessions(conn)
        run(conn, epochs.forget_database())  # the database is copied for each run
    with administration(url_of(url, _MAINTENANCE)) as admin:
        snapshot = DatabaseSnapshot(app, admin, name_of(url))
        snapshot.save()
        try:
            yield snapshot
        finally:
            snapshot.restore()
            snapshot.discard()
