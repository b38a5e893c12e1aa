"""A worker that ends by an error of its own drains all the same: its jobs have done nothing wrong."""

from __future__ import annotations

from tests.processes import apps
from tests.processes.fleet import Fleet
from tests.processes.observed_database import ObservedDatabase

# Not to be waited for: the next claim finds no such function.
NO_CLAIMS = "ALTER FUNCTION faultline.claim RENAME TO claim_no_more"


def test_what_it_was_running_is_handed_back_with_all_of_its_attempts(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    running = database.enqueue(apps.pay, gate="never")
    worker = fleet.started(
        "--lease-seconds", "600", "--drain-seconds", "0.2", "--poll-seconds", "0.1"
    )
    database.wait_for_mark(running)

    database.conn.execute(NO_CLAIMS)

    assert worker.wait() == 1, worker.recent_output()
    [leaving] = worker.events_named("worker_draining")
    assert leaving["cause"] == "error"
    assert database.job(running)[:2] == ("queued", 0)
    assert database.outcomes(running) == ["released"]
    assert database.count("FROM faultline.workers") == 0
