"""With the clock set back by a day, a monotonic clock still finds expired leases.

The stopped worker does not lead the reconcilers; the drill of a leader that does is
`database_clock_behind_frozen_leader`.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.failure_modes.conftest import DAY_SECONDS, ServerWithClock
from tests.failure_modes.failure_mode_fleet import FailureModeFleet
from tests.failure_modes.stopped_worker import KEEPS_ITS_LEASE, LONG_LEASE, stop_and_wait
from tests.processes import apps
from tests.processes.observed_database import ObservedDatabase


@pytest.fixture
def database_with_clock(server_with_clock: ServerWithClock) -> Iterator[ObservedDatabase]:
    with psycopg.connect(server_with_clock.url, autocommit=True) as conn:
        yield ObservedDatabase.build(conn)


@pytest.fixture
def fleet_with_clock(
    server_with_clock: ServerWithClock, database_with_clock: ObservedDatabase
) -> Iterator[FailureModeFleet]:
    fleet = FailureModeFleet(server_with_clock.url)
    yield fleet
    fleet.end()


@pytest.mark.slow
def test_a_stopped_worker_is_reconciled_although_the_databases_clock_extends_its_lease(
    server_with_clock: ServerWithClock,
    database_with_clock: ObservedDatabase,
    fleet_with_clock: FailureModeFleet,
) -> None:
    database, fleet = database_with_clock, fleet_with_clock
    job_id = database.enqueue(apps.pay, gate="never")
    stopped = fleet.started(*KEEPS_ITS_LEASE, name="stopped")
    database.wait_for_mark(job_id)
    stop_and_wait(database, stopped)

    server_with_clock.clock.move(-DAY_SECONDS)

    seems_valid = (
        "FROM faultline.jobs WHERE lease_expires_at > clock_timestamp() + interval '23 hours'"
    )
    assert database.count(seems_valid) == 1
    other = fleet.started(*LONG_LEASE, name="other")
    requeued = other.wait_for_event("lease_reaped", job_id=job_id, token=1)
    assert requeued["cause"] == "expired"
    assert database.wait_for_state(job_id)[:2] == ("succeeded", 2)
    assert database.payments(job_id) == 1
