"""A prepared database that is copied once for every point of a sweep."""

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
        """The URL of a copy, which is dropped at the end with all its sessions."""
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
    """`prepare` gets the URL of an empty database, and must leave no session open."""
    with scratch_database(server_url, prefix="faultline_sweep_template") as url:
        prepare(url)
        with connect(url, application_name="faultline drill") as conn:
            has_epochs = "SELECT to_regclass('faultline.epochs') IS NOT NULL"
            if conn.execute(has_epochs).fetchone() == (True,):
                run(conn, epochs.forget_database())  # else every copy would refuse claims
        yield DatabaseTemplate(server_url, url)
