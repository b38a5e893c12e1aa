"""A worker that ends because of its own error still drains, and releases its jobs."""

from __future__ import annotations

from tests.processes import apps
from tests.processes.fleet import Fleet
from tests.processes.observed_database import ObservedDatabase

# Not retried by the worker: the next claim finds no such function.
NO_CLAIMS = "ALTER FUNCTION faultline.claim RENAME TO claim_no_more"


def test_running_jobs_are_released_without_using_an_attempt(
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
