"""Fixtures of the failure modes: races, real workers, queues without a guard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from faultline import embedded
from faultline.postgres.migrate import migrate
from faultline_drills.clock import missing_requirement
from faultline_drills.clock.movable import MovableClock
from faultline_drills.race import RaceBehaviour, RaceReport, RaceSettings, run_race
from faultline_drills.subjects import Subject, install
from tests.conftest import TEST_SETTINGS
from tests.failure_modes.failure_mode_fleet import FailureModeFleet
from tests.processes.conftest import database, proxy
from tests.processes.observed_database import ObservedDatabase
from tests.slow import slow_unless

__all__ = ["database", "proxy"]  # fixtures

Race = Callable[..., RaceReport]
Apply = Callable[[str], None]

DAY_SECONDS = 86_400
# Seconds of the lease, and of the work that outlasts it.
LEASE_AND_WORK = slow_unless([(1, 2), (1, 3), (2, 3)], (1, 2))


@pytest.fixture
def race(empty_database_url: str) -> Race:
    """Runs one race in its own database."""

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
def fleet(database_url: str, database: ObservedDatabase) -> Iterator[FailureModeFleet]:
    """Worker processes with the tasks of these tests, ended with the test."""
    fleet = FailureModeFleet(database_url)
    yield fleet
    fleet.end()


@dataclass(frozen=True)
class ServerWithClock:
    url: str
    clock: MovableClock


@pytest.fixture
def clock(home: Path) -> MovableClock:
    if missing := missing_requirement():
        pytest.skip(missing)
    return MovableClock(home)


@pytest.fixture
def server_with_clock(home: Path, clock: MovableClock) -> Iterator[ServerWithClock]:
    """A server with the schema and a movable clock, for one test."""
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
    """Turn the test's database into the control, which has no fence."""
    install(Subject.NAIVE, database_url)


@pytest.fixture
def apply(conn: psycopg.Connection[Any]) -> Apply:
    """Executes SQL that removes one guard from the test's queue."""

    def change(sql: str) -> None:
        conn.execute(sql.encode())

    return change
