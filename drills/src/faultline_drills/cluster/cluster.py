"""A primary and its standbys; the drill acts as the HA manager.

Faultline has no failover of its own: an HA manager decides when a primary is lost and which standby is
promoted. Here the scenario decides, well or badly, and clients find the primary by a connection string
that names every server.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

from psycopg import conninfo

from faultline.embedded.server import Server
from faultline_drills.cluster.base_backup import base_backup
from faultline_drills.cluster.member import ClusterMember
from faultline_drills.cluster.settings import MEMBER_SETTINGS
from faultline_drills.context import DrillContext


class Cluster:
    """Its first primary is the server of the drill."""

    def __init__(
        self,
        drill: DrillContext,
        *,
        standbys: int = 1,
        settings: Mapping[str, str] = MEMBER_SETTINGS,
    ) -> None:
        """`settings` are those of the first primary, and of its successors."""
        self._drill = drill
        self._settings = settings
        self._database = str(conninfo.conninfo_to_dict(drill.url)["dbname"])
        self.primary = ClusterMember("server-1", drill.server, database=self._database)
        self.members = [self.primary]
        for _ in range(standbys):
            self.add_standby()
        drill.use_url(self.url)

    @property
    def standbys(self) -> list[ClusterMember]:
        return [member for member in self.members if member is not self.primary]

    @property
    def url(self) -> str:
        """Names every server; libpq opens a session on the one that takes writes."""
        return multi_host_url([member.url for member in self.members])

    def add_standby(self) -> ClusterMember:
        standby = self._copy(f"server-{len(self.members) + 1}")
        self.members.append(standby)
        return standby

    def replace(self, lost: ClusterMember) -> ClusterMember:
        """Start a new standby with the name and the port of the lost server."""
        port = lost.port
        lost.server.stop(mode="immediate")  # its data is not used again
        standby = self._copy(lost.name, port=port)
        self.members[self.members.index(lost)] = standby
        return standby

    def _copy(self, name: str, *, port: int | None = None) -> ClusterMember:
        source = self.primary.server
        data_dir = _unused(source.data_dir.parent)
        base_backup(source, data_dir)
        server = Server(data_dir, port=port, settings=self._settings, ephemeral=True)
        server.environment.update(source.environment)
        self._drill.stack.callback(server.stop, mode="immediate")
        standby = ClusterMember(name, server, database=self._database)
        standby.follow(self.primary)
        return standby

    def acknowledge_after(
        self, standbys: Sequence[ClusterMember], *, level: str = "remote_apply"
    ) -> None:
        """Let the primary acknowledge a COMMIT only when one of these standbys has it too."""
        names = ", ".join(f'"{standby.name}"' for standby in standbys)
        self.primary.set("synchronous_commit", level)
        self.primary.set("synchronous_standby_names", f"ANY 1 ({names})")
        self.primary.wait_until(
            lambda: bool(
                self.primary.ask(
                    "SELECT count(*) > 0 FROM pg_stat_replication"
                    " WHERE sync_state IN ('sync', 'quorum') AND state = 'streaming'"
                )
            ),
            "synchronous replication",
        )
        # The WAL sender has read the setting. Backends wait for a standby once the checkpointer has read
        # it too, which it does before it performs a requested checkpoint.
        self.primary.checkpoint()

    def wait_until_shipped(self, standby: ClusterMember) -> None:
        """Wait until the standby has replayed all WAL that the primary has flushed by now."""
        written = int(self.primary.ask("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn"))
        standby.wait_until(
            lambda: int(standby.ask("SELECT pg_last_wal_replay_lsn() - '0/0'::pg_lsn")) >= written,
            "the replay of all WAL",
        )

    def lose_primary(self) -> ClusterMember:
        """Power off the primary for good; the lost server."""
        lost = self.primary
        lost.power_off()
        self._drill.inject("power_cut", lost.name)
        return lost

    def freeze_primary(self) -> ClusterMember:
        """Stop every process of the primary, which then answers nothing; that server."""
        frozen = self.primary
        frozen.freeze()
        self._drill.inject("freeze", frozen.name)
        self._drill.stack.callback(frozen.power_off)  # a stopped process would not handle SIGTERM
        return frozen

    def promote(self, standby: ClusterMember) -> None:
        standby.promote()
        self.primary = standby
        self._drill.inject("promotion", standby.name, timeline=standby.timeline)


def _unused(home: Path) -> Path:
    folders = (home / f"data-{number}" for number in itertools.count(2))
    return next(folder for folder in folders if not folder.exists())


def multi_host_url(urls: Sequence[str]) -> str:
    """One connection string for several servers, tried in this order."""
    each = [conninfo.conninfo_to_dict(url) for url in urls]
    return conninfo.make_conninfo(
        urls[0],
        host=",".join(str(parts["host"]) for parts in each),
        port=",".join(str(parts["port"]) for parts in each),
        target_session_attrs="read-write",
    )
