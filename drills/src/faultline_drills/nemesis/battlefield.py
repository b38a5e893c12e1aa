"""What a nemesis may strike, and how long a blow lasts."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from faultline.embedded import Server
from faultline_drills.arena import Arena
from faultline_drills.clock.movable import MovableClock
from faultline_drills.cluster import Cluster
from faultline_drills.nemesis.network import Network
from faultline_drills.nemesis.roster import Roster
from faultline_drills.pooler import Pooler


@dataclass(frozen=True, kw_only=True)
class Battlefield:
    arena: Arena
    roster: Roster
    networks: Sequence[Network]
    dice: random.Random
    cluster: Cluster | None = None  # a primary and its standby
    clock: MovableClock | None = None
    pooler: Pooler | None = None
    max_connections: int = 0
    ending: threading.Event = field(default_factory=threading.Event)

    def hold(self, shortest_leases: float, longest_leases: float) -> None:
        """Let it last: a time drawn in lease lengths, cut short when the run ends."""
        leases = self.dice.uniform(shortest_leases, longest_leases)
        self.ending.wait(leases * self.arena.settings.lease_seconds)

    @property
    def server(self) -> Server:
        """The one that takes writes."""
        return self.arena.server if self.cluster is None else self.cluster.primary.server

    @property
    def network(self) -> Network:
        """One of them, drawn anew each time."""
        return self.dice.choice(self.networks)
