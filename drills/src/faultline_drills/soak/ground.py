"""What a soak stands on: a server with a standby and a movable clock, ways to it, and what may strike."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from faultline.embedded import Server, temporary_server
from faultline_drills import clock, cluster, pooler
from faultline_drills.arena import Arena, Notify
from faultline_drills.clock.movable import MovableClock
from faultline_drills.cluster import MEMBER_SETTINGS, Cluster
from faultline_drills.nemesis import Fault, Network, available_faults
from faultline_drills.pooler import Pooler, pooler_to
from faultline_drills.proxy import proxy_to
from faultline_drills.recorder import install_records
from faultline_drills.scratch import new_database, scratch_database
from faultline_drills.soak.settings import SoakSettings
from faultline_drills.subjects import install

MAX_CONNECTIONS = 120
_NETWORKS = 2
_SERVER_SETTINGS = {
    **MEMBER_SETTINGS,
    "max_connections": str(MAX_CONNECTIONS),
    # A clock that jumps by an hour does not make a standby silent.
    "wal_sender_timeout": "0",
    "wal_receiver_timeout": "0",
}


@dataclass(frozen=True, kw_only=True)
class Ground:
    arena: Arena
    networks: list[Network]
    faults: list[Fault]  # all that were chosen, and can be done here
    cluster: Cluster | None
    clock: MovableClock | None
    pooler: Pooler | None

    @property
    def urls(self) -> list[str]:
        """Every way to the database; the last one is by way of the pooler, where there is one."""
        urls = [network.url for network in self.networks]
        if self.pooler is not None:
            urls.append(self.pooler.url(_primary_url(self.arena, self.cluster)))
        return urls


def somebodys_ground(
    settings: SoakSettings, server_url: str, stack: ExitStack, notify: Notify
) -> Ground:
    """A database on a server that others use, which is not harmed."""
    url = stack.enter_context(scratch_database(server_url))
    arena = _arena(settings, url, None, stack, notify)
    return Ground(
        arena=arena,
        networks=_networks(arena, [url]),
        faults=_chosen(settings, available_faults(owns_server=False, moves_clock=False)),
        cluster=None,
        clock=None,
        pooler=None,
    )


def own_ground(settings: SoakSettings, stack: ExitStack, notify: Notify) -> Ground:
    """A server of the soak's own, with all that can be had on this machine."""
    server = stack.enter_context(temporary_server(settings=_SERVER_SETTINGS))
    moved = _movable_clock(server)
    url = new_database(server.url)  # it may be lost before the end
    arena = _arena(settings, url, server, stack, notify)
    pair = _pair(settings, arena)
    targets = [url] if pair is None else [member.url for member in pair.members]
    pooled = None
    if pooler.lacking() is None:
        pooled = stack.enter_context(pooler_to(_primary_url(arena, pair)))
    possible = available_faults(
        owns_server=True,
        moves_clock=moved is not None,
        has_pooler=pooled is not None,
        has_standby=pair is not None,
    )
    return Ground(
        arena=arena,
        networks=_networks(arena, targets),
        faults=_chosen(settings, possible),
        cluster=pair,
        clock=moved,
        pooler=pooled,
    )


def _arena(
    settings: SoakSettings, url: str, server: Server | None, stack: ExitStack, notify: Notify
) -> Arena:
    install(settings.subject, url)
    arena = Arena(url, settings.drill, server=server, stack=stack, notify=notify)
    install_records(arena.conn)
    return arena


def _movable_clock(server: Server) -> MovableClock | None:
    """Start the server anew with a clock that can be moved, where that is possible."""
    if clock.lacking() is not None:
        return None
    moved = MovableClock(server.data_dir.parent)
    server.shut_down(mode="fast")
    server.environment.update(moved.environment)
    server.start()
    return moved


def _pair(settings: SoakSettings, arena: Arena) -> Cluster | None:
    """A primary, and a standby that has all that is acknowledged, if one of them may be lost."""
    if (settings.faults and "failover" not in settings.faults) or cluster.lacking() is not None:
        return None
    pair = Cluster(arena, settings=_SERVER_SETTINGS)
    pair.acknowledge_after(pair.standbys, level="on")
    return pair


def _primary_url(arena: Arena, pair: Cluster | None) -> str:
    return arena.url if pair is None else pair.primary.url


def _networks(arena: Arena, targets: list[str]) -> list[Network]:
    return [
        Network(
            f"network-{number + 1}",
            [arena.stack.enter_context(proxy_to(url)) for url in targets],
        )
        for number in range(_NETWORKS)
    ]


def _chosen(settings: SoakSettings, possible: list[Fault]) -> list[Fault]:
    return [fault for fault in possible if not settings.faults or fault.kind in settings.faults]
