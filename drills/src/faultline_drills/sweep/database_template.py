"""Databases by the hundred: one is prepared, and each point is given a copy of its own."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from psycopg import conninfo, sql

from faultline.postgres.sessions import connect, run
from faultline.statements import epochs
from faultline_drills.servers.scratch_database import scratch_database


class DatabaseTemplate:
    def __init__(self, server_url: str, url: str) -> None:
        self._server_url = server_url
        self._name = sql.Identifier(str(conninfo.conninfo_to_dict(url)["dbname"]))

    @contextmanager
    def copy(self) -> Iterator[str]:
        """The URL of a copy, which is dropped at the end whoever is connected to it."""
        name = f"faultline_sweep_{secrets.token_hex(6)}"
        copy = sql.Identifier(name)
        with connect(self._server_url, application_name="faultline drill") as admin:
            admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(copy, self._name))
            try:
                yield conninfo.make_conninfo(self._server_url, dbname=name)
            finally:
                admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(copy))


@contextmanager
def database_template(
    server_url: str, prepare: Callable[[str], None]
) -> Iterator[DatabaseTemplate]:
    """`prepare` is given the URL of an empty database, and leaves no session behind."""
    with scratch_database(server_url, prefix="faultline_sweep_template") as url:
        prepare(url)
        with connect(url, application_name="faultline drill") as conn:
            if conn.execute("SELECT to_regclass('faultline.epochs') IS NOT NULL").fetchone() == (
                True,
            ):
                run(conn, epochs.forget_database())  # it is there to be copied
        yield DatabaseTemplate(server_url, url)
