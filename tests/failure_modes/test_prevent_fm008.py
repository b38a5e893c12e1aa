"""Workers' clocks do not matter; the fence holds when the database's clock jumps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from faultline import StaleLease
from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline_drills.clock.movable import MovableClock
from tests.failure_modes.clock_reconciler import DATABASE_CLOCK, reconcile_in_process
from tests.failure_modes.conftest import DAY_SECONDS, ServerWithClock
from tests.failure_modes.failure_mode_fleet import FailureModeFleet
from tests.processes import apps
from tests.processes.observed_database import ObservedDatabase
from tests.races.stepper import assert_settled, claim_as, claimed, expire, state_of

LONGER_THAN_A_LEASE = 5  # renewals: there are four to a lease


@pytest.mark.parametrize("days", [1, -1], ids=["a day ahead", "a day behind"])
def test_only_expired_leases_are_reconciled_whatever_the_reconcilers_clock_says(
    database: ObservedDatabase, database_url: str, clock: MovableClock, days: int
) -> None:
    healthy, dead = claimed(database.conn, 2)
    expire(database.conn, dead)
    clock.move(days * DAY_SECONDS)

    done = reconcile_in_process(database_url, DATABASE_CLOCK, clock.environment)

    assert done.clock_error == timedelta(days=days)
    assert done.jobs == 1
    assert (state_of(database.conn, healthy), state_of(database.conn, dead)) == (
        "running",
        "queued",
    )


@pytest.mark.parametrize(
    "days",
    [
        pytest.param(1, id="a day ahead"),
        pytest.param(-1, id="a day behind", marks=pytest.mark.slow),
    ],
)
def test_a_worker_with_a_wrong_clock_keeps_its_lease_and_commits(
    fleet: FailureModeFleet, database: ObservedDatabase, clock: MovableClock, days: int
) -> None:
    clock.move(days * DAY_SECONDS)
    fleet.environment = clock.environment
    worker = fleet.started("--lease-seconds", "3")
    job_id = database.enqueue(apps.pay, gate="open")
    renewed = worker.wait_for_event("lease_renewed", job_id=job_id, times=LONGER_THAN_A_LEASE)
    error = datetime.fromisoformat(renewed["at"]) - datetime.now(UTC)
    assert round(error / timedelta(days=1)) == days

    database.open("open")

    worker.wait_for_event("commit_ok", job_id=job_id, token=1)
    assert database.job(job_id)[:2] == ("succeeded", 1)
    assert not worker.events_named("lease_lost")
    assert database.payments(job_id) == 1


@pytest.mark.slow
def test_after_a_jump_of_the_databases_clock_only_the_next_holder_commits(
    server_with_clock: ServerWithClock,
) -> None:
    with psycopg.connect(server_with_clock.url, autocommit=True) as conn:
        taken_over, idle = claimed(conn, 2)
        server_with_clock.clock.move(DAY_SECONDS)

        with pytest.raises(StaleLease, match="lease_expired"):
            run(conn, protocol.commit(taken_over))
        assert len(run(conn, claim_as("second", 1))) == 1
        for claim in (taken_over, idle):
            with pytest.raises(StaleLease):
                run(conn, protocol.commit(claim))
        assert_settled(conn)
        ledger = conn.execute(
            "SELECT min(fencing_token), count(*) FROM faultline.ledger"
        ).fetchone()
    assert ledger == (2, 2)
