"""The clean slate: the test's database as it was found, brought back before every run."""

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
from faultline.testing.zombies.referee import end_other_sessions

_MAINTENANCE = "postgres"


class Slate:
    """The same name, so the same URL, in every run: whoever has it may connect again."""

    def __init__(self, app: Faultline, admin: Connection, name: str) -> None:
        self._app = app
        self._admin = admin
        self._name = name
        self._copy = f"{name}_slate"

    def keep(self) -> None:
        copy_database(self._admin, self._name, self._copy)

    def restore(self) -> None:
        close_connections(self._app)
        drop_database(self._admin, self._name)
        copy_database(self._admin, self._copy, self._name)

    def discard(self) -> None:
        drop_database(self._admin, self._copy)


@contextlib.contextmanager
def clean_slate(app: Faultline) -> Iterator[Slate]:
    """Every session in the database is ended: it could not be copied otherwise."""
    url = app.database_url
    close_connections(app)
    with connect(url, application_name="faultline testing") as conn:
        require_test_database(conn)
        end_other_sessions(conn)
        run(conn, epochs.forget_database())  # every run has a copy
    with administration(url_of(url, _MAINTENANCE)) as admin:
        slate = Slate(app, admin, name_of(url))
        slate.keep()
        try:
            yield slate
        finally:
            slate.restore()
            slate.discard()
