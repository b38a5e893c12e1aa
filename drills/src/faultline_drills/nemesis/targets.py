"""What a nemesis may break, and how long a fault lasts."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from faultline.embedded import Server
from faultline_drills.clock.movable import MovableClock
from faultline_drills.cluster import Cluster
from faultline_drills.context import DrillContext
from faultline_drills.nemesis.network import ProxiedNetwork
from faultline_drills.nemesis.processes import NemesisProcesses
from faultline_drills.servers.pooler import Pooler


@dataclass(frozen=True, kw_only=True)
class FaultTargets:
    drill: DrillContext
    processes: NemesisProcesses
    networks: Sequence[ProxiedNetwork]
    rng: random.Random
    cluster: Cluster | None = None  # a primary and its standby
    clock: MovableClock | None = None
    pooler: Pooler | None = None
    max_connections: int = 0
    ending: threading.Event = field(default_factory=threading.Event)

    def hold(self, shortest_leases: float, longest_leases: float) -> None:
        """Let a fault last for a random time, in lease lengths; less if the run is ending."""
        leases = self.rng.uniform(shortest_leases, longest_leases)
        self.ending.wait(leases * self.drill.settings.lease_seconds)

    @property
    def server(self) -> Server:
        """The server that takes writes."""
        return self.drill.server if self.cluster is None else self.cluster.primary.server

    def any_network(self) -> ProxiedNetwork:
        """A random network."""
        return self.rng.choice(self.networks)
