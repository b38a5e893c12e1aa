"""What a nemesis may strike, and how long a blow lasts."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from faultline.drills.arena import Arena
from faultline.drills.clock.movable import MovableClock
from faultline.drills.cluster import Cluster
from faultline.drills.nemesis.network import Network
from faultline.drills.nemesis.roster import Roster
from faultline.drills.pooler import Pooler
from faultline.embedded import Server


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
