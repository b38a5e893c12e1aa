"""A database is copied on its server, and workers connect to both.

A copy (CREATE DATABASE … TEMPLATE) has the same server, timeline and identity: only the database's
oid differs. If jobs were claimed from both, the same token would be issued twice, and the external
store would accept both. The copy must refuse every claim (FL008) until `faultline epoch bump`.
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
        drill.expect(refused, "the first claim in the copy was not refused")
        theirs = _claim(drill.conn)
        drill.expect(bool(theirs), "no job could be claimed in the original")
        drill.expect(not _tokens(mine) & _tokens(theirs), "a token was issued in both databases")
        for claim in theirs:
            run(drill.conn, protocol.release(claim))
        run(copy, epochs.bump("a drill"))
        after = _claim(copy)
        drill.expect(bool(after), "no job could be claimed in the copy after the bump")
        drill.expect(
            not _tokens(after) & _tokens(theirs), "a token of the original was issued in the copy"
        )
    drill.started_worker("--concurrency", "2")
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of the original's jobs")


def _copy(drill: DrillContext) -> str:
    """Copy the database, which must have no session meanwhile; the URL of the copy."""
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
