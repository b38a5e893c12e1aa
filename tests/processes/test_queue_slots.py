"""Slots of queues on the command line: they belong to each process."""

from __future__ import annotations

from tests.lease_history import most_leases
from tests.processes import apps
from tests.processes.fleet import Fleet
from tests.processes.observed_database import ObservedDatabase

JOBS = 30


def test_each_supervised_process_has_the_slots_for_itself(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    jobs = [
        database.enqueue(apps.pay, queue=queue) for queue in ("bills", "mail") for _ in range(JOBS)
    ]
    supervisor = fleet.worker(
        "--processes", "2", "--queues", "bills:1=3,*:3", "--concurrency", "4", name="supervisor"
    )
    for number in (1, 2):
        started = supervisor.wait_for_event("worker_started", times=number)
        assert started["queue_slots"] == {"bills": 1, "*": 3}
        assert started["queue_weights"] == {"bills": 3}
    for job_id in jobs:
        database.wait_for_state(job_id, "succeeded")
    most = most_leases(database.conn)
    assert most["bills"] == 1
    assert most["mail"] <= 3
    database.assert_paid_once_each(2 * JOBS)


def test_without_a_concurrency_a_process_runs_as_many_jobs_as_its_queues_have_slots(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    worker = fleet.worker("--queues", "bills:2,mail:1")
    assert worker.wait_for_event("worker_started")["concurrency"] == 3
    jobs = [database.enqueue(apps.pay, queue="bills", gate="go") for _ in range(3)]
    jobs += [database.enqueue(apps.pay, queue="mail", gate="go") for _ in range(2)]
    running = "FROM faultline.jobs WHERE state = 'running'"
    database.wait_until(lambda: database.count(running) == 3, "not all slots are in use")
    database.open("go")
    for job_id in jobs:
        database.wait_for_state(job_id, "succeeded")
    assert most_leases(database.conn) == {"bills": 2, "mail": 1}


def test_a_list_of_queues_without_a_meaning_ends_the_worker_with_its_reason(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    worker = fleet.worker("--queues", "bills:0")
    assert worker.wait() == 2
    assert "slots must be a whole number from 1 to 10,000" in worker.recent_output()
