"""Two writes that are only near each other: a crash comes between them, and the retry makes it worse.

The guard that is missing is the transaction around them: the handler commits each write by itself.
"""

from __future__ import annotations

from tests.failure_modes import apps
from tests.failure_modes.crew import Crew
from tests.processes.stage import Stage


def test_without_one_transaction_a_crash_leaves_half_and_the_retry_repeats_it(
    crew: Crew, stage: Stage
) -> None:
    stage.conn.execute(apps.BOOKINGS)
    job_id = stage.enqueue(apps.transfer_piecemeal, stop="between")
    killed = crew.started("--lease-seconds", "600", name="killed")
    stage.wait_for_mark(job_id, "between")

    killed.kill()

    half = stage.conn.execute("SELECT side FROM bookings").fetchall()
    assert half == [("debit",)]
    crew.started(name="other")
    stage.wait_for_state(job_id)
    sides = stage.conn.execute("SELECT side, count(*) FROM bookings GROUP BY 1 ORDER BY 1")
    assert sides.fetchall() == [("credit", 1), ("debit", 2)]
