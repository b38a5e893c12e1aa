"""What the failure modes share: races, crews of real workers, and queues with a guard taken out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from faultline import embedded
from faultline.postgres.migrate import migrate
from faultline_drills.clock import lacking
from faultline_drills.clock.movable import MovableClock
from faultline_drills.race import RaceBehaviour, RaceReport, RaceSettings, run_race
from faultline_drills.subjects import Subject, install
from tests.conftest import TEST_SETTINGS
from tests.failure_modes.crew import Crew
from tests.processes.conftest import database, proxy
from tests.processes.observed_database import ObservedDatabase

__all__ = ["database", "proxy"]  # fixtures

Race = Callable[..., RaceReport]
Apply = Callable[[str], None]

DAY_SECONDS = 86_400
# How long the lease lasts, and how long the work of the worker that times out.
LEASE_AND_WORK = [(1, 2), (1, 3), (2, 3)]


@pytest.fixture
def race(empty_database_url: str) -> Race:
    """Runs one race in a database of its own."""

    def run(
        subject: Subject,
        *,
        lease: float = 1,
        work: float = 0,
        role: RaceBehaviour = RaceBehaviour.STALLS,
        **more: bool,
    ) -> RaceReport:
        install(subject, empty_database_url)
        settings = RaceSettings(
            lease_seconds=lease, stall_seconds=work, behaviour_of_a=role, **more
        )
        return run_race(empty_database_url, settings)

    return run


@pytest.fixture
def crew(database_url: str, database: ObservedDatabase) -> Iterator[Crew]:
    """Workers that know the tasks of these tests, all gone when the test ends."""
    crew = Crew(database_url)
    yield crew
    crew.end()


@dataclass(frozen=True)
class ServerWithClock:
    url: str
    clock: MovableClock


@pytest.fixture
def clock(home: Path) -> MovableClock:
    if missing := lacking():
        pytest.skip(missing)
    return MovableClock(home)


@pytest.fixture
def server_with_clock(home: Path, clock: MovableClock) -> Iterator[ServerWithClock]:
    """A server of the test's own, with the schema, that goes by a clock which can be set."""
    server = embedded.Server(home / "data", settings={**TEST_SETTINGS, "max_connections": "40"})
    server.environment.update(clock.environment)
    try:
        server.start()
        migrate(server.url)
        yield ServerWithClock(server.url, clock)
    finally:
        server.stop(mode="immediate")


@pytest.fixture
def without_fence(database_url: str) -> None:
    """The test's database becomes the control: the same queue, and no fence."""
    install(Subject.NAIVE, database_url)


@pytest.fixture
def apply(conn: psycopg.Connection[Any]) -> Apply:
    """Changes the queue in the test's database, to take one guard out of it."""

    def change(sql: str) -> None:
        conn.execute(sql.encode())

    return change
