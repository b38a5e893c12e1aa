"""One server of a cluster: queries, replication, promotion, loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, LiteralString

from psycopg import conninfo, sql

from faultline.embedded.server import Server
from faultline.postgres.sessions import connect
from faultline_drills.cluster.base_backup import STANDBY, start_as
from faultline_drills.cluster.power import freeze, power_off
from faultline_drills.context import DrillNotRun
from faultline_drills.recording.database_state import DatabaseState
from faultline_drills.recording.tables import read_database_state
from faultline_drills.waiting import wait_until

_TIMEOUT_SECONDS = 30.0
_RECEIVERS: LiteralString = "SELECT count(*) FROM pg_stat_wal_receiver"
_STREAMS: LiteralString = _RECEIVERS + " WHERE status = 'streaming'"
_HAS_REPLAYED: LiteralString = (
    "SELECT coalesce(pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn(), true)"
)


class ClusterMember:
    def __init__(self, name: str, server: Server, *, database: str) -> None:
        self.name = name
        self.server = server
        self.database = database

    @property
    def url(self) -> str:
        """To this server only, whether primary or standby."""
        return conninfo.make_conninfo(
            self.server.url, dbname=self.database, target_session_attrs="any"
        )

    @property
    def port(self) -> int:
        return int(conninfo.conninfo_to_dict(self.server.url)["port"] or 0)

    def ask(self, query: LiteralString) -> Any:
        """The one value that the query returns, in a new session."""
        with connect(self.url, application_name="faultline drill") as conn:
            row = conn.execute(query).fetchone()
        return row[0] if row else None

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        if not wait_until(condition, timeout_seconds=_TIMEOUT_SECONDS):
            raise DrillNotRun(f"{self.name}: {what} did not happen")

    def read_state(self) -> DatabaseState:
        with connect(self.url, application_name="faultline drill") as conn:
            return read_database_state(conn)

    # ── as a standby ─────────────────────────────────────────────────────────────────────────────

    @property
    def received(self) -> int:
        """The WAL received, in bytes: of two standbys, the one with more is promoted."""
        return int(self.ask("SELECT pg_last_wal_receive_lsn() - '0/0'::pg_lsn"))

    @property
    def timeline(self) -> int:
        """The timeline of the WAL that it writes."""
        return int(self.ask("SELECT pg_walfile_name(pg_current_wal_lsn())")[:8], 16)

    def follow(self, leader: ClusterMember | None) -> None:
        """Stream WAL from `leader`; from no server if None, as in a network partition."""
        source = "" if leader is None else _as_source(leader, follower=self.name)
        if self.server.running:
            self.set("primary_conninfo", source)
        else:
            start_as(STANDBY, self.server.data_dir, primary_conninfo=source)
            self.server.start()
        if leader is None:
            self.wait_until(lambda: self.ask(_RECEIVERS) == 0, "the end of WAL streaming")
            self.wait_until(lambda: bool(self.ask(_HAS_REPLAYED)), "the replay of all received WAL")
        else:
            self.wait_until(lambda: self.ask(_STREAMS) == 1, "WAL streaming")

    def promote(self) -> None:
        if not self.ask("SELECT pg_promote(true, 30)"):
            raise DrillNotRun(f"{self.name} was not promoted")

    # ── as any server ────────────────────────────────────────────────────────────────────────────

    def set(self, name: str, value: str) -> None:
        """ALTER SYSTEM on this server alone, with a reload."""
        change = sql.SQL("ALTER SYSTEM SET {} = {}").format(
            sql.Identifier(name), sql.Literal(value)
        )
        with connect(self.url, application_name="faultline drill") as conn:
            conn.execute(change)
            conn.execute("SELECT pg_reload_conf()")

    def checkpoint(self) -> None:
        with connect(self.url, application_name="faultline drill") as conn:
            conn.execute("CHECKPOINT")

    def power_off(self) -> None:
        power_off(self.server)

    def freeze(self) -> None:
        freeze(self.server)

    def read_from_disk(self) -> DatabaseState:
        """Start a lost server on another port, and read the state that its disk holds."""
        last_port = self.server.data_dir / "postmaster.opts"
        last_port.unlink(missing_ok=True)  # so that it gets another port
        self.server.start()
        try:
            return self.read_state()
        finally:
            self.power_off()


def _as_source(leader: ClusterMember, *, follower: str) -> str:
    return conninfo.make_conninfo(leader.server.url, application_name=follower, dbname=None)
