"""A killed worker is noticed at once; its job runs elsewhere, with one effect.

The leases last ten minutes, so only the worker's lost sessions can explain the recovery.
"""

from __future__ import annotations

import signal
from typing import Any

import pytest

from faultline.task import Task
from tests.processes import apps
from tests.processes.fleet import Fleet, Process
from tests.processes.observed_database import ObservedDatabase

LONG_LEASE = ("--lease-seconds", "600")


def assert_recovered_by(survivor: Process, killed: Process, job_id: object) -> None:
    requeued = survivor.wait_for_event("lease_reaped", job_id=job_id, token=1)
    assert requeued["cause"] == "worker_lost"
    assert requeued["lost_worker"] == killed.wait_for_event("worker_started")["worker"]


@pytest.mark.parametrize("task", apps.PAYING, ids=lambda task: task.handler.__name__)
def test_the_job_of_a_killed_worker_runs_on_another_one_and_takes_effect_once(
    fleet: Fleet, database: ObservedDatabase, task: Task[..., Any]
) -> None:
    job_id = database.enqueue(task, gate="never")
    killed = fleet.started(*LONG_LEASE, name="killed")
    database.wait_for_mark(job_id)
    other = fleet.started(*LONG_LEASE, name="other")

    killed.kill()

    assert_recovered_by(other, killed, job_id)
    assert database.wait_for_state(job_id)[:2] == ("succeeded", 2)
    other.wait_for_event("commit_ok", job_id=job_id, token=2)
    assert database.payments(job_id) == 1
    assert database.outcomes(job_id) == ["worker_lost"]
    database.assert_in_order()


@pytest.mark.slow
def test_a_killed_worker_whose_row_was_purged_before_is_noticed_at_once(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    job_id = database.enqueue(apps.pay, gate="never")
    killed = fleet.started(*LONG_LEASE, "--heartbeat-seconds", "0.2", name="killed")
    database.wait_for_mark(job_id)
    other = fleet.started(*LONG_LEASE, "--heartbeat-seconds", "0.2", name="other")
    name = killed.wait_for_event("worker_started")["worker"]
    registered = "FROM faultline.workers WHERE id = %s"
    database.conn.execute("DELETE FROM faultline.workers WHERE id = %s", [name])
    database.wait_until(
        lambda: database.count(registered, [name]) == 1, "it does not register again"
    )

    killed.kill()

    assert_recovered_by(other, killed, job_id)
    assert database.wait_for_state(job_id)[:2] == ("succeeded", 2)


def test_only_the_uncommitted_jobs_of_a_killed_worker_run_again(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    done = [database.enqueue(apps.pay) for _ in range(5)]
    open_jobs = [database.enqueue(apps.pay, gate="never") for _ in range(5)]
    killed = fleet.started(*LONG_LEASE, name="killed")
    for job_id in done:
        database.wait_for_state(job_id)
    for job_id in open_jobs:
        database.wait_for_mark(job_id)
    other = fleet.started(*LONG_LEASE, name="other")

    killed.kill()

    database.wait_for_all(10)
    database.assert_paid_once_each(10)
    assert {database.job(job_id).attempts for job_id in done} == {1}
    assert {database.job(job_id).attempts for job_id in open_jobs} == {2}
    other.wait_for_event("worker_lost")
    assert len(other.events_named("worker_lost")) == 1


def test_a_worker_killed_between_claim_and_start_never_ran_the_job(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    other = fleet.started(*LONG_LEASE, "--queues", "elsewhere", name="other")
    killed = fleet.started(*LONG_LEASE, "--no-reconciler", name="killed")
    claim = "TRIGGER held AFTER UPDATE ON faultline.jobs FOR EACH ROW WHEN (NEW.state = 'running')"
    with database.held_back(claim):
        job_id = database.enqueue(apps.pay)
        database.wait_until_held()
        killed.send(signal.SIGSTOP)  # it does not read the reply to its claim
    database.wait_for_state(job_id, "running")

    killed.kill()

    assert_recovered_by(other, killed, job_id)
    assert not killed.events_named("lease_acquired")
    fleet.started(*LONG_LEASE, name="third")
    assert database.wait_for_state(job_id)[:2] == ("succeeded", 2)
    assert database.count("FROM app.marks WHERE what = 'started'") == 1
    assert database.payments(job_id) == 1


@pytest.mark.slow
def test_a_worker_killed_during_its_claim_leaves_the_job_unchanged(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    killed = fleet.started(*LONG_LEASE, name="killed")
    claim = "TRIGGER held AFTER UPDATE ON faultline.jobs FOR EACH ROW WHEN (NEW.state = 'running')"
    with database.held_back(claim):
        job_id = database.enqueue(apps.pay)
        backend = database.wait_until_held()
        killed.kill()
        gone = "FROM pg_stat_activity WHERE pid = %s"
        database.wait_until(
            lambda: database.count(gone, [backend]) == 0, "its session is still there"
        )
        assert database.job(job_id) == ("queued", 0, None, 0)
    fleet.started(*LONG_LEASE, name="other")
    assert database.wait_for_state(job_id)[:2] == ("succeeded", 1)
    assert database.payments(job_id) == 1


def test_a_worker_killed_during_its_commit_pays_once_in_the_end(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    killed = fleet.started(*LONG_LEASE, name="killed")
    deferred = "CONSTRAINT TRIGGER held AFTER INSERT ON app.payments DEFERRABLE INITIALLY DEFERRED"
    with database.held_back(f"{deferred} FOR EACH ROW"):
        job_id = database.enqueue(apps.pay)
        database.wait_until_held()
        other = fleet.started(*LONG_LEASE, name="other")
        killed.kill()
        # The backend notices the lost client and rolls back the commit in progress.
        assert_recovered_by(other, killed, job_id)
    assert database.wait_for_state(job_id)[:2] == ("succeeded", 2)
    assert database.payments(job_id) == 1
    database.assert_in_order()
