"""A primary and its standbys, with the drill in the part of the HA manager.

Faultline has no failover of its own: whoever runs PostgreSQL has an HA manager that decides when a
primary is lost and which standby takes its place. Here the drill decides, well or badly as the story
wants it, and clients find the primary by a connection string that names every server.
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
    """Around the server that the drill was given, which is the first primary."""

    def __init__(
        self,
        drill: DrillContext,
        *,
        standbys: int = 1,
        settings: Mapping[str, str] = MEMBER_SETTINGS,
    ) -> None:
        """`settings` are those of the first primary, and of whoever is to take its place."""
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
        """Names every server; a session is opened on the one that takes writes."""
        return multi_host_url([member.url for member in self.members])

    def add_standby(self) -> ClusterMember:
        standby = self._copy(f"server-{len(self.members) + 1}")
        self.members.append(standby)
        return standby

    def replace(self, lost: ClusterMember) -> ClusterMember:
        """A machine with nothing on it but a copy of the primary, at the address of the one that is lost:
        its standby, by the same name."""
        port = lost.port
        lost.server.stop(mode="immediate")  # what was on it is gone
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
        """From now on the primary answers a COMMIT when one of these has it as well."""
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
        # The sender of the log has read the setting; who makes a COMMIT wait is told of it by the
        # checkpointer, which reads it before it does anything that is asked of it.
        self.primary.checkpoint()

    def wait_until_shipped(self, standby: ClusterMember) -> None:
        """Until it has replayed all that the primary has written by now."""
        written = int(self.primary.ask("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn"))
        standby.wait_until(
            lambda: int(standby.ask("SELECT pg_last_wal_replay_lsn() - '0/0'::pg_lsn")) >= written,
            "replication of all that was written",
        )

    def lose_primary(self) -> ClusterMember:
        """Its machine is gone, with all that was on it; which server that was."""
        lost = self.primary
        lost.power_off()
        self._drill.inject("power_cut", lost.name)
        return lost

    def freeze_primary(self) -> ClusterMember:
        """It answers nothing any more, and nothing says that it is gone; which server that was."""
        frozen = self.primary
        frozen.freeze()
        self._drill.inject("freeze", frozen.name)
        self._drill.stack.callback(frozen.power_off)  # a stopped process handles no other signal
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
