"""After a crash at any point the effect exists completely or not at all."""

from __future__ import annotations

from tests.failure_modes import apps
from tests.failure_modes.failure_mode_fleet import FailureModeFleet
from tests.processes.observed_database import ObservedDatabase

CRASH_POINTS = ("before", "between", "after")


def test_after_a_crash_at_any_point_each_write_exists_once(
    fleet: FailureModeFleet, database: ObservedDatabase
) -> None:
    database.conn.execute(apps.BOOKINGS)
    jobs = {stop: database.enqueue(apps.transfer, stop=stop) for stop in CRASH_POINTS}
    done = database.enqueue(apps.transfer, stop="nowhere")
    killed = fleet.started("--lease-seconds", "600", name="killed")
    for stop, job_id in jobs.items():
        database.wait_for_mark(job_id, stop)
    database.wait_for_state(done)
    other = fleet.started("--lease-seconds", "600", name="other")

    killed.kill()

    database.wait_for_all(len(jobs) + 1)
    other.wait_for_event("worker_lost")
    booked = database.conn.execute(
        "SELECT job_id, array_agg(side ORDER BY side), min(token), max(token) FROM bookings GROUP BY 1"
    )
    expected = {job_id: (["credit", "debit"], 2, 2) for job_id in jobs.values()}
    expected[done] = (["credit", "debit"], 1, 1)
    assert {job_id: tuple(rest) for job_id, *rest in booked} == expected
    database.assert_in_order()
