"""The environment of a soak: server, standby, clock, networks, pooler, faults."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from faultline.embedded import Server, temporary_server
from faultline_drills import clock, cluster
from faultline_drills.clock.movable import MovableClock
from faultline_drills.cluster import MEMBER_SETTINGS, Cluster
from faultline_drills.context import DrillContext, Notify
from faultline_drills.nemesis import NemesisFault, ProxiedNetwork, available_faults
from faultline_drills.proxy import proxy_to
from faultline_drills.recording.tables import install_tables
from faultline_drills.servers import pooler
from faultline_drills.servers.pooler import Pooler, pooler_to
from faultline_drills.servers.scratch_database import new_database, scratch_database
from faultline_drills.soak.settings import SoakSettings
from faultline_drills.subjects import install

MAX_CONNECTIONS = 120
_NETWORKS = 2
_SERVER_SETTINGS = {
    **MEMBER_SETTINGS,
    "max_connections": str(MAX_CONNECTIONS),
    # Else a clock that jumps by an hour would end replication.
    "wal_sender_timeout": "0",
    "wal_receiver_timeout": "0",
}


@dataclass(frozen=True, kw_only=True)
class SoakEnvironment:
    drill: DrillContext
    networks: list[ProxiedNetwork]
    faults: list[NemesisFault]  # those that were chosen and can be injected here
    cluster: Cluster | None
    clock: MovableClock | None
    pooler: Pooler | None

    @property
    def urls(self) -> list[str]:
        """One URL per network, and one through the pooler if there is one."""
        urls = [network.url for network in self.networks]
        if self.pooler is not None:
            urls.append(self.pooler.url(_primary_url(self.drill, self.cluster)))
        return urls


def shared_environment(
    settings: SoakSettings, server_url: str, stack: ExitStack, notify: Notify
) -> SoakEnvironment:
    """A database on an existing server, which is not harmed."""
    url = stack.enter_context(scratch_database(server_url))
    drill = _make_context(settings, url, None, stack, notify)
    return SoakEnvironment(
        drill=drill,
        networks=_networks(drill, [url]),
        faults=_chosen(settings, available_faults(owns_server=False, moves_clock=False)),
        cluster=None,
        clock=None,
        pooler=None,
    )


def own_environment(settings: SoakSettings, stack: ExitStack, notify: Notify) -> SoakEnvironment:
    """A new server, with a clock, standby and pooler if this machine has the programs."""
    server = stack.enter_context(temporary_server(settings=_SERVER_SETTINGS))
    moved = _movable_clock(server)
    url = new_database(server.url)  # not dropped: the server may be lost before the end
    drill = _make_context(settings, url, server, stack, notify)
    pair = _pair(settings, drill)
    targets = [url] if pair is None else [member.url for member in pair.members]
    pooled = None
    if pooler.missing_requirement() is None:
        pooled = stack.enter_context(pooler_to(_primary_url(drill, pair)))
    possible = available_faults(
        owns_server=True,
        moves_clock=moved is not None,
        has_pooler=pooled is not None,
        has_standby=pair is not None,
    )
    return SoakEnvironment(
        drill=drill,
        networks=_networks(drill, targets),
        faults=_chosen(settings, possible),
        cluster=pair,
        clock=moved,
        pooler=pooled,
    )


def _make_context(
    settings: SoakSettings, url: str, server: Server | None, stack: ExitStack, notify: Notify
) -> DrillContext:
    install(settings.subject, url)
    drill = DrillContext(url, settings.drill, server=server, stack=stack, notify=notify)
    install_tables(drill.conn)
    return drill


def _movable_clock(server: Server) -> MovableClock | None:
    """Restart the server with a movable clock, if this machine can compile one."""
    if clock.missing_requirement() is not None:
        return None
    moved = MovableClock(server.data_dir.parent)
    server.shut_down(mode="fast")
    server.environment.update(moved.environment)
    server.start()
    return moved


def _pair(settings: SoakSettings, drill: DrillContext) -> Cluster | None:
    """A primary with a synchronous standby, if failovers are to be injected."""
    if (
        settings.faults and "failover" not in settings.faults
    ) or cluster.missing_requirement() is not None:
        return None
    pair = Cluster(drill, settings=_SERVER_SETTINGS)
    pair.acknowledge_after(pair.standbys, level="on")
    return pair


def _primary_url(drill: DrillContext, pair: Cluster | None) -> str:
    return drill.url if pair is None else pair.primary.url


def _networks(drill: DrillContext, targets: list[str]) -> list[ProxiedNetwork]:
    return [
        ProxiedNetwork(
            f"network-{number + 1}",
            [drill.stack.enter_context(proxy_to(url)) for url in targets],
        )
        for number in range(_NETWORKS)
    ]


def _chosen(settings: SoakSettings, possible: list[NemesisFault]) -> list[NemesisFault]:
    return [fault for fault in possible if not settings.faults or fault.kind in settings.faults]
