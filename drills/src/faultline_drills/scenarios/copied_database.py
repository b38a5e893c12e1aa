"""A database is copied on its own server, and workers are pointed at both.

An operator makes a copy to look at (CREATE DATABASE … TEMPLATE), or restores a dump beside the original.
The server, its timeline and its identity are the same, so that only the database's oid tells the two
apart. Were the copy claimed from, the same job would get the same token twice, and the outside, which
compares tokens, would accept both. The copy refuses every claim (FL008) until `faultline epoch bump`.
"""

from __future__ import annotations

from typing import LiteralString

from psycopg import conninfo, sql

from faultline.errors import ServerChanged
from faultline.model import Claim
from faultline.postgres.sessions import Connection, connect, run
from faultline.statements import epochs, protocol
from faultline_drills.context import DrillContext
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import note


@scenario(shows=("duplicates", "commits"))
def copied_database(drill: DrillContext) -> None:
    for number in range(drill.settings.jobs):
        drill.submit(note, key=f"note-{number}", number=number)
    url = _copy(drill)
    with connect(url, application_name="faultline drill") as copy:
        try:
            mine = _claim(copy)
            refused = False
        except ServerChanged:
            mine, refused = [], True
        drill.expect(refused, "the first claim in the copy is refused")
        theirs = _claim(drill.conn)
        drill.expect(bool(theirs), "the original goes on")
        drill.expect(not _tokens(mine) & _tokens(theirs), "no token is given out in both databases")
        for claim in theirs:
            run(drill.conn, protocol.release(claim))
        run(copy, epochs.bump("a drill"))
        after = _claim(copy)
        drill.expect(bool(after), "the copy goes on once an operator has said so")
        drill.expect(not _tokens(after) & _tokens(theirs), "its tokens are not the original's")
    drill.started_worker("--concurrency", "2")
    drill.wait_until(lambda: drill.unfinished() == 0, "the original's jobs are done")


def _copy(drill: DrillContext) -> str:
    """The URL of a copy, which is gone with the drill. A database that is copied has no sessions."""
    name = str(conninfo.conninfo_to_dict(drill.url)["dbname"])
    copied = f"{name}_copy"
    maintenance = conninfo.make_conninfo(drill.url, dbname="postgres")

    def administer(statement: LiteralString, *names: str) -> None:
        with connect(maintenance, application_name="faultline drill") as admin:
            admin.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    drill.conn.close()
    administer("CREATE DATABASE {} TEMPLATE {}", copied, name)
    drill.stack.callback(administer, "DROP DATABASE IF EXISTS {} WITH (FORCE)", copied)
    drill.inject("duplicate", copied)
    return conninfo.make_conninfo(drill.url, dbname=copied)


def _claim(conn: Connection) -> list[Claim]:
    return run(conn, protocol.claim("clerk", ["default"], batch_size=1000, lease_seconds=30))


def _tokens(claims: list[Claim]) -> set[tuple[str, int]]:
    return {(claim.id, claim.fencing_token) for claim in claims}
