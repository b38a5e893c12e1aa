"""Ground to strike on, made once per process: templates, and the points that an undisturbed run passes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from faultline_drills.sweep import Ground, Point, SweepSettings, Target, ground


class KnownGround:
    def __init__(self, ground: Ground) -> None:
        self.strike = ground.strike
        self.points = cache(self._points)
        self._ground = ground

    def _points(self, target: Target) -> tuple[Point, ...]:
        return tuple(self._ground.points(target))


@pytest.fixture(scope="session")
def known_ground(server_url: str) -> Iterator[KnownGround]:
    with ground(server_url, SweepSettings()) as made:
        yield KnownGround(made)
