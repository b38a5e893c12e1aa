"""What the network is like just now: for everyone, or for the sessions of one application."""

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
class _Hole:
    direction: Direction
    application: str | None


@dataclass(frozen=True, slots=True)
class _Slowness:
    direction: Direction
    application: str | None
    seconds: float
    jitter_seconds: float


class Weather:
    """Belongs to one event loop: only that loop's thread may touch it."""

    def __init__(self) -> None:
        self._holes: list[_Hole] = []
        self._slow: list[_Slowness] = []
        self._dice = random.Random(0)  # noqa: S311 - the same weather for the same seed
        self._changed = asyncio.Event()
        self.refuses_connections = False

    def blackhole(self, direction: Direction, application: str | None) -> None:
        self._holes.append(_Hole(direction, application))

    def slow_down(
        self,
        seconds: float,
        *,
        jitter_seconds: float,
        seed: int,
        direction: Direction,
        application: str | None,
    ) -> None:
        self._dice = random.Random(seed)  # noqa: S311
        self._slow = [each for each in self._slow if each.application != application]
        self._slow.append(_Slowness(direction, application, seconds, jitter_seconds))

    def clear_up(self) -> None:
        self._holes.clear()
        self._slow.clear()
        self.refuses_connections = False
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def is_blocked(self, application: str, direction: Direction) -> bool:
        return any(
            hole.direction.covers(direction) and hole.application in (None, application)
            for hole in self._holes
        )

    async def passable(self, application: str, direction: Direction) -> None:
        """Wait until what is sent this way arrives."""
        while self.is_blocked(application, direction):
            await self._changed.wait()

    def delay_seconds(self, application: str, direction: Direction) -> float:
        """How long the next thing sent this way will take."""
        total = 0.0
        for each in self._slow:
            if each.direction.covers(direction) and each.application in (None, application):
                swing = self._dice.uniform(-each.jitter_seconds, each.jitter_seconds)
                total += max(0.0, each.seconds + swing)
        return total
