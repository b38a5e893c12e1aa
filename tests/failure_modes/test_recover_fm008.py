"""The database's clock is set back by a day: leases linger by it, and are missed by a steady one.

The worker that stops does not lead the reconcilers: what becomes of one that does is a drill of its own,
`database_clock_behind_leader`.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.failure_modes.conftest import DAY_SECONDS, ServerWithClock
from tests.failure_modes.crew import Crew
from tests.failure_modes.standstill import KEEPS_ITS_JOB, LONG_LEASE, stand_still
from tests.processes import apps
from tests.processes.observed_database import ObservedDatabase


@pytest.fixture
def stage_with_clock(server_with_clock: ServerWithClock) -> Iterator[ObservedDatabase]:
    with psycopg.connect(server_with_clock.url, autocommit=True) as conn:
        yield ObservedDatabase.build(conn)


@pytest.fixture
def crew_with_clock(
    server_with_clock: ServerWithClock, stage_with_clock: ObservedDatabase
) -> Iterator[Crew]:
    crew = Crew(server_with_clock.url)
    yield crew
    crew.end()


def test_a_stopped_worker_is_missed_although_by_the_database_its_lease_lasts_another_day(
    server_with_clock: ServerWithClock, stage_with_clock: ObservedDatabase, crew_with_clock: Crew
) -> None:
    database, crew = stage_with_clock, crew_with_clock
    job_id = database.enqueue(apps.pay, gate="never")
    stopped = crew.started(*KEEPS_ITS_JOB, name="stopped")
    database.wait_for_mark(job_id)
    stand_still(database, stopped)

    server_with_clock.clock.move(-DAY_SECONDS)

    lingers = "FROM faultline.jobs WHERE lease_expires_at > clock_timestamp() + interval '23 hours'"
    assert database.count(lingers) == 1
    other = crew.started(*LONG_LEASE, name="other")
    reaped = other.wait_for_event("lease_reaped", job_id=job_id, token=1)
    assert reaped["cause"] == "expired"
    assert database.wait_for_state(job_id)[:2] == ("succeeded", 2)
    assert database.payments(job_id) == 1
