"""One point runner per test process, which finds the points of each target once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from faultline_drills.sweep import PointRunner, SweepPoint, SweepSettings, SweepTarget, point_runner


class CachedPoints:
    """A point runner whose points are found once per target."""

    def __init__(self, runner: PointRunner) -> None:
        self.run = runner.run
        self.points = cache(self._points)
        self._runner = runner

    def _points(self, target: SweepTarget) -> tuple[SweepPoint, ...]:
        return tuple(self._runner.points(target))


@pytest.fixture(scope="session")
def swept(server_url: str) -> Iterator[CachedPoints]:
    with point_runner(server_url, SweepSettings()) as runner:
        yield CachedPoints(runner)
