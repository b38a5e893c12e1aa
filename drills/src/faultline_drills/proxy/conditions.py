"""The simulated state of the network: blackholes, delays and refused connections."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from enum import StrEnum


class Direction(StrEnum):
    TO_SERVER = "to server"
    TO_CLIENT = "to client"
    BOTH = "both"

    def covers(self, other: Direction) -> bool:
        return self in (Direction.BOTH, other)


@dataclass(frozen=True, slots=True)
class _Blackhole:
    direction: Direction
    application: str | None


@dataclass(frozen=True, slots=True)
class _Delay:
    direction: Direction
    application: str | None
    seconds: float
    jitter_seconds: float


class NetworkConditions:
    """For all connections or one application's; used by one event loop only."""

    def __init__(self) -> None:
        self._blackholes: list[_Blackhole] = []
        self._delays: list[_Delay] = []
        self._random = random.Random(0)  # noqa: S311 - the same delays for the same seed
        self._changed = asyncio.Event()
        self.refuses_connections = False

    def blackhole(self, direction: Direction, application: str | None) -> None:
        self._blackholes.append(_Blackhole(direction, application))

    def delay(
        self,
        seconds: float,
        *,
        jitter_seconds: float,
        seed: int,
        direction: Direction,
        application: str | None,
    ) -> None:
        self._random = random.Random(seed)  # noqa: S311
        self._delays = [each for each in self._delays if each.application != application]
        self._delays.append(_Delay(direction, application, seconds, jitter_seconds))

    def clear(self) -> None:
        self._blackholes.clear()
        self._delays.clear()
        self.refuses_connections = False
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def is_blocked(self, application: str, direction: Direction) -> bool:
        return any(
            hole.direction.covers(direction) and hole.application in (None, application)
            for hole in self._blackholes
        )

    async def wait_until_passable(self, application: str, direction: Direction) -> None:
        """Wait until no blackhole covers this application and direction."""
        while self.is_blocked(application, direction):
            await self._changed.wait()

    def delay_seconds(self, application: str, direction: Direction) -> float:
        """The delay, with jitter, of the next bytes of this application and direction."""
        total = 0.0
        for each in self._delays:
            if each.direction.covers(direction) and each.application in (None, application):
                jitter = self._random.uniform(-each.jitter_seconds, each.jitter_seconds)
                total += max(0.0, each.seconds + jitter)
        return total
