"""Dumps the roles and one database of a server as SQL, and restores the dump."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from psycopg import sql

from faultline.embedded.process import chown_to_server_account
from faultline.embedded.server import PASSWORD_FILE, Server
from faultline.postgres.sessions import connect
from faultline_drills.cluster.member import ClusterMember
from faultline_drills.cluster.programs import run_program

# Transaction ids of the source, made negative: those of the new server start again.
_NEGATE_TRANSACTIONS = """
    UPDATE drill.transitions SET transaction = -transaction;
    UPDATE drill.effects SET transaction = -transaction;
    UPDATE drill.committed_steps SET transaction = -transaction;
"""


@dataclass(frozen=True)
class Dump:
    source: ClusterMember
    roles: str
    database: str

    @classmethod
    def of(cls, source: ClusterMember) -> Dump:
        server = source.server
        return cls(
            source,
            roles=run_program("pg_dumpall", "--roles-only", url=server.url, version=server.version),
            database=run_program("pg_dump", url=source.url, version=server.version),
        )

    def restore(self, server: Server) -> ClusterMember:
        """Restore into an empty server, which gets the source's password."""
        server.start()
        version = server.version
        run_program("psql", "--quiet", url=server.url, version=version, reads=self.roles)
        password = server.data_dir / PASSWORD_FILE
        shutil.copyfile(self.source.server.data_dir / PASSWORD_FILE, password)
        chown_to_server_account(password)
        name = self.source.database
        with connect(server.url, application_name="faultline drill") as conn:
            conn.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        restored = ClusterMember("restored", server, database=name)
        options = ("--quiet", "--set", "ON_ERROR_STOP=1")
        run_program("psql", *options, url=restored.url, version=version, reads=self.database)
        with connect(restored.url, application_name="faultline drill") as conn:
            conn.execute(_NEGATE_TRANSACTIONS)
        return restored
