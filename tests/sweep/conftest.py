"""A point runner per process: template databases, and the points of an undisturbed run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from faultline_drills.sweep import PointRunner, SweepPoint, SweepSettings, SweepTarget, point_runner


class KnownGround:
    def __init__(self, ground: PointRunner) -> None:
        self.strike = ground.strike
        self.points = cache(self._points)
        self._ground = ground

    def _points(self, target: SweepTarget) -> tuple[SweepPoint, ...]:
        return tuple(self._ground.points(target))


@pytest.fixture(scope="session")
def known_ground(server_url: str) -> Iterator[KnownGround]:
    with point_runner(server_url, SweepSettings()) as made:
        yield KnownGround(made)
