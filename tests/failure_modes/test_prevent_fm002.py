"""Both writes and the commit are one transaction: a crash leaves neither write."""

from __future__ import annotations

from tests.failure_modes import apps
from tests.failure_modes.failure_mode_fleet import FailureModeFleet
from tests.processes.observed_database import ObservedDatabase


def test_a_crash_between_two_writes_leaves_neither(
    fleet: FailureModeFleet, database: ObservedDatabase
) -> None:
    database.conn.execute(apps.BOOKINGS)
    job_id = database.enqueue(apps.transfer, stop="between")
    killed = fleet.started("--lease-seconds", "600", name="killed")
    database.wait_for_mark(job_id, "between")

    killed.kill()

    gone = "FROM pg_stat_activity WHERE application_name LIKE 'faultline%%' AND datname = current_database()"
    database.wait_until(lambda: database.count(gone) == 0, "its sessions have not ended")
    assert database.count("FROM bookings") == 0
    assert database.count("FROM faultline.ledger") == 0
    assert database.job(job_id).state == "running"  # until a reconciler notices the loss
