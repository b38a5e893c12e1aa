"""Two writes that are only near each other: a crash comes between them, and the retry makes it worse.

The guard that is missing is the transaction around them: the handler commits each write by itself.
"""

from __future__ import annotations

from tests.failure_modes import apps
from tests.failure_modes.crew import Crew
from tests.processes.observed_database import ObservedDatabase


def test_without_one_transaction_a_crash_leaves_half_and_the_retry_repeats_it(
    crew: Crew, database: ObservedDatabase
) -> None:
    database.conn.execute(apps.BOOKINGS)
    job_id = database.enqueue(apps.transfer_piecemeal, stop="between")
    killed = crew.started("--lease-seconds", "600", name="killed")
    database.wait_for_mark(job_id, "between")

    killed.kill()

    half = database.conn.execute("SELECT side FROM bookings").fetchall()
    assert half == [("debit",)]
    crew.started(name="other")
    database.wait_for_state(job_id)
    sides = database.conn.execute("SELECT side, count(*) FROM bookings GROUP BY 1 ORDER BY 1")
    assert sides.fetchall() == [("credit", 1), ("debit", 2)]
