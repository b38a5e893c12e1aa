"""A worker drains on an operator's request, and is not restarted."""

from __future__ import annotations

import signal

import pytest

from faultline.postgres.sessions import run
from faultline.statements.workers import request_drain
from faultline_drills.servers.pooler import TRANSACTION, missing_requirement, pooler_to
from tests.processes import apps
from tests.processes.fleet import Fleet, Process
from tests.processes.observed_database import ObservedDatabase

LONG_LEASE = ("--lease-seconds", "600")  # so a heartbeat comes every 150 s
OFTEN_HEARD = (*LONG_LEASE, "--heartbeat-seconds", "0.2")
LONG_DRAIN = ("--drain-seconds", "600")
SHORT_DRAIN = ("--drain-seconds", "0.2")


def ask(database: ObservedDatabase, *names: str) -> None:
    run(database.conn, request_drain(names or None))


def id_of(worker: Process, nth: int = 1) -> str:
    return str(worker.wait_for_event("worker_started", times=nth)["worker"])


def test_it_finishes_running_jobs_claims_no_others_and_stops(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    job_id = database.enqueue(apps.pay, gate="go")
    worker = fleet.started(*LONG_LEASE, *LONG_DRAIN)
    database.wait_for_mark(job_id)

    ask(database)
    worker.wait_for_event("worker_draining", running=1, cause="request")
    late = database.enqueue(apps.pay)
    worker.send(signal.SIGTERM)  # the first signal does not shorten the drain
    database.open("go")

    assert worker.wait() == 0, worker.recent_output()
    assert database.job(job_id)[:2] == ("succeeded", 1)
    assert database.job(late)[:2] == ("queued", 0)
    assert database.count("FROM faultline.workers") == 0


@pytest.mark.parametrize("is_notified", [True, False])
def test_unfinished_jobs_are_released_with_or_without_a_notification(
    fleet: Fleet, database: ObservedDatabase, is_notified: bool
) -> None:
    """Behind a pooler there is no NOTIFY: the next heartbeat brings the request."""
    job_id = database.enqueue(apps.pay, gate="never")
    lease = LONG_LEASE if is_notified else OFTEN_HEARD
    worker = fleet.started(*lease, *SHORT_DRAIN)
    database.wait_for_mark(job_id)
    beats = "FROM faultline.workers WHERE last_heartbeat_at > started_at"
    # The next heartbeat is minutes away.
    database.wait_until(lambda: database.count(beats) == 1, "no heartbeat")
    if not is_notified:
        database.conn.execute("SET faultline.notify = 'off'")

    ask(database, id_of(worker))

    assert worker.wait() == 0, worker.recent_output()
    assert database.job(job_id)[:2] == ("queued", 0)
    assert database.outcomes(job_id) == ["released"]
    assert database.count("FROM faultline.workers") == 0


def test_behind_a_pooler_in_transaction_mode_the_heartbeat_brings_the_request(
    fleet: Fleet, database: ObservedDatabase, server_url: str, database_url: str
) -> None:
    if missing := missing_requirement():
        pytest.skip(missing)
    with pooler_to(server_url, mode=TRANSACTION) as pooler:
        job_id = database.enqueue(apps.pay_beside, seconds=600)
        url = pooler.url(database_url)
        worker = fleet.started(*OFTEN_HEARD, *SHORT_DRAIN, url=url)
        worker.wait_for_event("execution_started", job_id=job_id)

        ask(database, id_of(worker))

        assert worker.wait() == 0, worker.recent_output()
    assert database.job(job_id)[:2] == ("queued", 0)
    assert database.count("FROM faultline.workers") == 0


def test_a_second_signal_shortens_the_drain_and_a_request_does_not(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    job_id = database.enqueue(apps.pay, gate="never")
    worker = fleet.started(*OFTEN_HEARD, *LONG_DRAIN)
    database.wait_for_mark(job_id)
    worker.send(signal.SIGTERM)
    worker.wait_for_event("worker_draining", cause="signal")
    ask(database)
    informed = "FROM faultline.workers WHERE last_heartbeat_at > drain_requested_at"
    database.wait_until(lambda: database.count(informed) == 1, "no heartbeat tells it")
    so_far = len(worker.events_named("lease_renewed"))
    worker.wait_for_event("lease_renewed", times=so_far + 2)  # it keeps draining
    assert database.job(job_id).state == "running"

    worker.send(signal.SIGTERM)

    assert worker.wait() == 0, worker.recent_output()
    assert database.job(job_id)[:2] == ("queued", 0)


@pytest.mark.slow
def test_a_supervisor_does_not_restart_a_worker_that_was_asked_to_drain(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    supervisor = fleet.worker("--processes", "2", *LONG_LEASE, name="supervisor")
    first, second = id_of(supervisor), id_of(supervisor, 2)

    ask(database, first)
    supervisor.wait_for_event("process_drained", exit_code=0)
    assert database.registered() == 1
    # The other worker continues.
    assert database.wait_for_state(database.enqueue(apps.pay)).attempts == 1
    ask(database, second)

    assert supervisor.wait() == 0, supervisor.recent_output()
    assert len(supervisor.events_named("process_drained")) == 2
    assert not supervisor.events_named("process_restarted")
    assert len(supervisor.events_named("worker_started")) == 2
    assert database.registered() == 0


def test_a_supervised_worker_that_exits_by_itself_is_restarted(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    """A worker that reached --max-jobs also exits with 0."""
    supervisor = fleet.worker("--processes", "2", "--max-jobs", "1", name="supervisor")
    supervisor.wait_for_event("worker_started", times=2)
    database.wait_for_state(database.enqueue(apps.pay))
    supervisor.wait_for_event("process_restarted", exit_code=0)
    supervisor.wait_for_event("worker_started", times=3)
