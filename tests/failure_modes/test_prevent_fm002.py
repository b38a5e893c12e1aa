"""Both writes and the job's success are one transaction: a crash between them leaves nothing."""

from __future__ import annotations

from tests.failure_modes import apps
from tests.failure_modes.crew import Crew
from tests.processes.observed_database import ObservedDatabase


def test_a_crash_between_two_writes_leaves_neither(crew: Crew, database: ObservedDatabase) -> None:
    database.conn.execute(apps.BOOKINGS)
    job_id = database.enqueue(apps.transfer, stop="between")
    killed = crew.started("--lease-seconds", "600", name="killed")
    database.wait_for_mark(job_id, "between")

    killed.kill()

    gone = "FROM pg_stat_activity WHERE application_name LIKE 'faultline%%' AND datname = current_database()"
    database.wait_until(lambda: database.count(gone) == 0, "its sessions live on")
    assert database.count("FROM bookings") == 0
    assert database.count("FROM faultline.ledger") == 0
    assert database.job(job_id).state == "running"  # until somebody misses the worker
