"""FM_001: duplicate execution caused by retry after timeout. Real processes, real PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from faultline.drills.race import RaceReport, RaceSettings, Role, run_race
from faultline.drills.subjects import Subject, install

Race = Callable[..., RaceReport]

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
        role: Role = Role.STALLS,
        **more: bool,
    ) -> RaceReport:
        install(subject, empty_database_url)
        settings = RaceSettings(lease_seconds=lease, stall_seconds=work, role_of_a=role, **more)
        return run_race(empty_database_url, settings)

    return run
