"""What a nemesis may strike, and how long a blow lasts."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from faultline.drills.arena import Arena
from faultline.drills.clock.movable import MovableClock
from faultline.drills.nemesis.roster import Roster
from faultline.drills.pooler import Pooler
from faultline.drills.proxy import Proxy


@dataclass(frozen=True, kw_only=True)
class Battlefield:
    arena: Arena
    roster: Roster
    networks: Sequence[Proxy]
    dice: random.Random
    clock: MovableClock | None = None
    pooler: Pooler | None = None
    max_connections: int = 0
    ending: threading.Event = field(default_factory=threading.Event)

    def hold(self, shortest_leases: float, longest_leases: float) -> None:
        """Let it last: a time drawn in lease lengths, cut short when the run ends."""
        leases = self.dice.uniform(shortest_leases, longest_leases)
        self.ending.wait(leases * self.arena.settings.lease_seconds)

    @property
    def network(self) -> Proxy:
        """One of them, drawn anew each time."""
        return self.dice.choice(self.networks)
