"""Clocks disagree or jump: a valid lease is reconciled, an expired one is not.

The missing guard is first the database's clock as the only one, then the fence.
"""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline_drills.clock.movable import MovableClock
from faultline_drills.subjects import Subject, install
from tests.failure_modes.clock_reconciler import OWN_CLOCK, reconcile_in_process
from tests.failure_modes.conftest import DAY_SECONDS, ServerWithClock
from tests.processes.observed_database import ObservedDatabase
from tests.races.stepper import claim_as, claimed, expire, state_of


def test_a_reconciler_with_its_own_fast_clock_requeues_a_healthy_workers_job(
    database: ObservedDatabase, database_url: str, clock: MovableClock
) -> None:
    (claim,) = claimed(database.conn)
    clock.move(DAY_SECONDS)

    done = reconcile_in_process(database_url, OWN_CLOCK, clock.environment)

    assert done.clock_error == timedelta(days=1)
    assert done.jobs == 1
    assert state_of(database.conn, claim) == "queued"


@pytest.mark.slow
def test_a_reconciler_with_its_own_slow_clock_leaves_an_expired_lease_for_a_day(
    database: ObservedDatabase, database_url: str, clock: MovableClock
) -> None:
    (claim,) = claimed(database.conn)
    expire(database.conn, claim)
    clock.move(-DAY_SECONDS)

    done = reconcile_in_process(database_url, OWN_CLOCK, clock.environment)

    assert done.clock_error == timedelta(days=-1)
    assert done.jobs == 0
    assert state_of(database.conn, claim) == "running"


@pytest.mark.slow
def test_without_the_fence_a_jump_of_the_databases_clock_lets_two_workers_commit(
    server_with_clock: ServerWithClock,
) -> None:
    install(Subject.NAIVE, server_with_clock.url)
    with psycopg.connect(server_with_clock.url, autocommit=True) as conn:
        (first,) = claimed(conn)

        server_with_clock.clock.move(DAY_SECONDS)

        (second,) = run(conn, claim_as("second"))
        for claim in (first, second):
            run(conn, protocol.commit(claim))
        entries = conn.execute("SELECT fencing_token FROM faultline.ledger ORDER BY 1").fetchall()
    assert entries == [(1,), (2,)]
