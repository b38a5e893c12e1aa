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
from faultline_drills.arena import Arena
from faultline_drills.scenario import scenario
from faultline_drills.workload import note


@scenario(shows=("duplicates", "commits"))
def copied_database(arena: Arena) -> None:
    for number in range(arena.settings.jobs):
        arena.submit(note, key=f"note-{number}", number=number)
    url = _copy(arena)
    with connect(url, application_name="faultline drill") as copy:
        try:
            mine = _claim(copy)
            refused = False
        except ServerChanged:
            mine, refused = [], True
        arena.expect(refused, "the first claim in the copy is refused")
        theirs = _claim(arena.conn)
        arena.expect(bool(theirs), "the original goes on")
        arena.expect(not _tokens(mine) & _tokens(theirs), "no token is given out in both databases")
        for claim in theirs:
            run(arena.conn, protocol.release(claim))
        run(copy, epochs.bump("a drill"))
        after = _claim(copy)
        arena.expect(bool(after), "the copy goes on once an operator has said so")
        arena.expect(not _tokens(after) & _tokens(theirs), "its tokens are not the original's")
    arena.started("--concurrency", "2")
    arena.wait_until(lambda: arena.unfinished() == 0, "the original's jobs are done")


def _copy(arena: Arena) -> str:
    """The URL of a copy, which is gone with the drill. A database that is copied has no sessions."""
    name = str(conninfo.conninfo_to_dict(arena.url)["dbname"])
    copied = f"{name}_copy"
    maintenance = conninfo.make_conninfo(arena.url, dbname="postgres")

    def administer(statement: LiteralString, *names: str) -> None:
        with connect(maintenance, application_name="faultline drill") as admin:
            admin.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    arena.conn.close()
    administer("CREATE DATABASE {} TEMPLATE {}", copied, name)
    arena.stack.callback(administer, "DROP DATABASE IF EXISTS {} WITH (FORCE)", copied)
    arena.inject("duplicate", copied)
    return conninfo.make_conninfo(arena.url, dbname=copied)


def _claim(conn: Connection) -> list[Claim]:
    return run(conn, protocol.claim("clerk", ["default"], batch_size=1000, lease_seconds=30))


def _tokens(claims: list[Claim]) -> set[tuple[str, int]]:
    return {(claim.id, claim.fencing_token) for claim in claims}
