"""A stopping worker exits although the database does not reply."""

from __future__ import annotations

import signal

import pytest

from faultline_drills.proxy import Action, Match, Proxy
from tests.processes import apps
from tests.processes.fleet import Fleet
from tests.processes.observed_database import BOUND_SECONDS, ObservedDatabase

LONG_LEASE = ("--lease-seconds", "600", "--no-reconciler")
CLAIM = "faultline.claim("


@pytest.mark.parametrize("action", [Action.HOLD, Action.DROP_REPLY])
def test_a_claim_without_a_reply_does_not_delay_the_exit(
    fleet: Fleet, database: ObservedDatabase, proxy: Proxy, action: Action
) -> None:
    """Whether or not the claim took effect, its job is queued, no attempt used."""
    job_id = database.enqueue(apps.pay)
    interception = proxy.on(Match(text=CLAIM), action)
    worker = fleet.started(*LONG_LEASE, "--drain-seconds", "0.2", url=proxy.url)
    assert interception.wait(BOUND_SECONDS), worker.recent_output()
    if action is Action.DROP_REPLY:
        database.wait_for_state(job_id, "running")

    worker.send(signal.SIGTERM)

    assert worker.wait() == 0, worker.recent_output()
    assert database.count("FROM faultline.workers") == 0
    assert database.job(job_id)[:2] == ("queued", 0)
    assert database.outcomes(job_id) == (["released"] if action is Action.DROP_REPLY else [])


def test_a_registration_without_a_reply_does_not_delay_the_exit(
    fleet: Fleet, database: ObservedDatabase, proxy: Proxy
) -> None:
    interception = proxy.on(Match(text="faultline.register_worker("), Action.HOLD)
    worker = fleet.worker(*LONG_LEASE, url=proxy.url)
    assert interception.wait(BOUND_SECONDS), worker.recent_output()

    worker.send(signal.SIGTERM)

    assert worker.wait() == 0, worker.recent_output()
    assert not worker.events_named("worker_started")


@pytest.mark.slow
def test_a_claim_that_waits_for_a_lock_does_not_delay_the_exit(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    running = database.enqueue(apps.pay, gate="never")
    worker = fleet.started(*LONG_LEASE, "--drain-seconds", "600")
    database.wait_for_mark(running)
    waiting = (
        "SELECT FROM pg_locks WHERE NOT granted AND relation = 'faultline.jobs'::regclass"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    with database.conn.transaction():
        database.conn.execute("LOCK TABLE faultline.jobs IN ACCESS EXCLUSIVE MODE")
        database.wait_for_row(waiting, [], "no claim waits")
        worker.send(signal.SIGTERM)
        worker.wait_for_event("worker_draining", running=1)
    worker.send(signal.SIGTERM)

    assert worker.wait() == 0, worker.recent_output()
    assert database.job(running)[:2] == ("queued", 0)
    assert database.count("FROM faultline.workers") == 0


@pytest.mark.slow
def test_a_database_that_never_replies_does_not_delay_the_exit(
    fleet: Fleet, database: ObservedDatabase, proxy: Proxy
) -> None:
    """Its jobs cannot be released then: they are requeued when their leases expire."""
    job_id = database.enqueue(apps.pay_beside, seconds=600)
    worker = fleet.started(*LONG_LEASE, "--drain-seconds", "0.2", url=proxy.url)
    worker.wait_for_event("execution_started", job_id=job_id)
    proxy.blackhole()

    worker.send(signal.SIGTERM)

    assert worker.wait() == 0, worker.recent_output()
    assert database.job(job_id).state == "running"


def test_the_workers_of_a_killed_supervisor_drain_and_exit(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    job_id = database.enqueue(apps.pay, gate="go")
    supervisor = fleet.worker("--processes", "2", *LONG_LEASE, name="supervisor")
    supervisor.wait_for_event("worker_started", times=2)
    database.wait_for_mark(job_id)

    supervisor.kill()
    supervisor.wait_for_event("worker_draining", times=2)
    database.open("go")

    supervisor.wait_for_event("worker_stopped", times=2)
    database.wait_until(lambda: database.registered() == 0, "its workers are still there")
    assert database.job(job_id)[:2] == ("succeeded", 1)
