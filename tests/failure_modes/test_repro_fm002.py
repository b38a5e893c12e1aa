"""Two writes in two transactions: a crash leaves one, and a retry repeats it.

The missing guard is one transaction around both.
"""

from __future__ import annotations

from tests.failure_modes import apps
from tests.failure_modes.failure_mode_fleet import FailureModeFleet
from tests.processes.observed_database import ObservedDatabase


def test_without_one_transaction_a_crash_leaves_half_and_the_retry_repeats_it(
    fleet: FailureModeFleet, database: ObservedDatabase
) -> None:
    database.conn.execute(apps.BOOKINGS)
    job_id = database.enqueue(apps.transfer_piecemeal, stop="between")
    killed = fleet.started("--lease-seconds", "600", name="killed")
    database.wait_for_mark(job_id, "between")

    killed.kill()

    half = database.conn.execute("SELECT side FROM bookings").fetchall()
    assert half == [("debit",)]
    fleet.started(name="other")
    database.wait_for_state(job_id)
    sides = database.conn.execute("SELECT side, count(*) FROM bookings GROUP BY 1 ORDER BY 1")
    assert sides.fetchall() == [("credit", 1), ("debit", 2)]
