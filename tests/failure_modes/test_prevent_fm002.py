"""Both writes and the job's success are one transaction: a crash between them leaves nothing."""

from __future__ import annotations

from tests.failure_modes import apps
from tests.failure_modes.crew import Crew
from tests.processes.stage import Stage


def test_a_crash_between_two_writes_leaves_neither(crew: Crew, stage: Stage) -> None:
    stage.conn.execute(apps.BOOKINGS)
    job_id = stage.enqueue(apps.transfer, stop="between")
    killed = crew.started("--lease-seconds", "600", name="killed")
    stage.wait_for_mark(job_id, "between")

    killed.kill()

    gone = "FROM pg_stat_activity WHERE application_name LIKE 'faultline%%' AND datname = current_database()"
    stage.wait_until(lambda: stage.count(gone) == 0, "its sessions live on")
    assert stage.count("FROM bookings") == 0
    assert stage.count("FROM faultline.ledger") == 0
    assert stage.job(job_id).state == "running"  # until somebody misses the worker
