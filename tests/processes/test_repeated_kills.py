"""Workers are killed one after another under load; all invariants hold."""

from __future__ import annotations

import pytest

from tests.processes import apps
from tests.processes.fleet import Fleet, Process
from tests.processes.observed_database import ObservedDatabase

JOBS = 100
MORE_JOBS = 20
KILLS = 5
OPTIONS = ("--lease-seconds", "5", "--concurrency", "4", "--no-reconciler")


def enqueue(database: ObservedDatabase, count: int) -> None:
    apps.pay_in_the_database.options(conn=database.conn).enqueue_many([{"seconds": 0.1}] * count)


def wait_until_busy(database: ObservedDatabase, worker: Process) -> None:
    """Wait until the worker runs a job; enqueue more if the queue is empty."""
    running = "FROM faultline.jobs AS j JOIN faultline.workers AS w ON w.id = j.lease_owner"
    running += " WHERE j.state = 'running' AND w.pid = %s"

    def is_busy() -> bool:
        if database.count("FROM faultline.jobs WHERE state = 'queued'") == 0:
            enqueue(database, MORE_JOBS)
        return database.count(running, [worker.pid]) > 0

    worker.wait_for_event("worker_started")
    database.wait_until(is_busy, "the worker runs no job")


@pytest.mark.slow
def test_every_job_takes_effect_once_while_workers_are_killed_one_after_another(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    # Its first attempt does not finish while its worker lives.
    unfinished = database.enqueue(apps.pay_slowly, gate="never")
    enqueue(database, JOBS)
    reconcilers = [fleet.reconciler(f"reconciler {n}") for n in range(2)]
    database.wait_until(
        lambda: any(each.events_named("reconciler_leading") for each in reconcilers),
        "no reconciler leads",
    )
    workers = [fleet.worker(*OPTIONS, name=f"worker {n}") for n in range(3)]

    # If several workers vanish between two passes, their leases must expire: kill the first one alone.
    at_work = database.wait_for_mark(unfinished)
    workers.sort(key=lambda worker: worker.pid != at_work)
    for kill in range(KILLS):
        victim = workers.pop(0)
        wait_until_busy(database, victim)
        victim.kill()
        if kill == 0:
            database.wait_until(
                lambda: bool(database.outcomes(unfinished)), "its loss is not noticed"
            )
        if kill == KILLS // 2:
            leader = max(reconcilers, key=lambda each: len(each.events_named("reconciler_leading")))
            leader.kill()
        workers.append(fleet.worker(*OPTIONS, name=f"successor {kill}"))

    jobs = database.count("FROM faultline.jobs")
    database.wait_for_all(jobs)
    database.assert_paid_once_each(jobs)
    assert database.outcomes(unfinished)[0] == "worker_lost"
