"""A worker that an operator asks to leave: the same end as after a signal, and nobody starts it again."""

from __future__ import annotations

import signal

import pytest

from faultline.postgres.sessions import run
from faultline.statements.workers import request_drain
from faultline_drills.servers.pooler import TRANSACTION, lacking, pooler_to
from tests.processes import apps
from tests.processes.fleet import Fleet, Process
from tests.processes.observed_database import ObservedDatabase

LONG_LEASE = ("--lease-seconds", "600")  # its heartbeat comes every 150 s
OFTEN_HEARD = (*LONG_LEASE, "--heartbeat-seconds", "0.2")
LONG_DRAIN = ("--drain-seconds", "600")
SHORT_DRAIN = ("--drain-seconds", "0.2")


def ask(database: ObservedDatabase, *names: str) -> None:
    run(database.conn, request_drain(names or None))


def id_of(worker: Process, nth: int = 1) -> str:
    return str(worker.wait_for_event("worker_started", times=nth)["worker"])


def test_it_finishes_what_runs_begins_nothing_and_leaves_at_once(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    job_id = database.enqueue(apps.pay, gate="go")
    worker = fleet.started(*LONG_LEASE, *LONG_DRAIN)
    database.wait_for_mark(job_id)

    ask(database)
    worker.wait_for_event("worker_draining", running=1, cause="request")
    late = database.enqueue(apps.pay)
    worker.send(signal.SIGTERM)  # the first signal: no reason to hurry
    database.open("go")

    assert worker.wait() == 0, worker.recent_output()
    assert database.job(job_id)[:2] == ("succeeded", 1)
    assert database.job(late)[:2] == ("queued", 0)
    assert database.count("FROM faultline.workers") == 0


@pytest.mark.parametrize("is_notified", [True, False])
def test_what_does_not_finish_is_handed_back_whether_or_not_it_was_notified(
    fleet: Fleet, database: ObservedDatabase, is_notified: bool
) -> None:
    """Behind a pooler nothing is notified: the next heartbeat tells."""
    job_id = database.enqueue(apps.pay, gate="never")
    lease = LONG_LEASE if is_notified else OFTEN_HEARD
    worker = fleet.started(*lease, *SHORT_DRAIN)
    database.wait_for_mark(job_id)
    beats = "FROM faultline.workers WHERE last_heartbeat_at > started_at"
    database.wait_until(lambda: database.count(beats) == 1, "no heartbeat")  # the next is far away
    if not is_notified:
        database.conn.execute("SET faultline.notify = 'off'")

    ask(database, id_of(worker))

    assert worker.wait() == 0, worker.recent_output()
    assert database.job(job_id)[:2] == ("queued", 0)
    assert database.outcomes(job_id) == ["released"]
    assert database.count("FROM faultline.workers") == 0


def test_behind_a_pooler_in_transaction_mode_the_heartbeat_tells(
    fleet: Fleet, database: ObservedDatabase, server_url: str, database_url: str
) -> None:
    if missing := lacking():
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


def test_a_second_signal_hurries_and_a_request_is_none(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    job_id = database.enqueue(apps.pay, gate="never")
    worker = fleet.started(*OFTEN_HEARD, *LONG_DRAIN)
    database.wait_for_mark(job_id)
    worker.send(signal.SIGTERM)
    worker.wait_for_event("worker_draining", cause="signal")
    ask(database)
    told = "FROM faultline.workers WHERE last_heartbeat_at > drain_requested_at"
    database.wait_until(lambda: database.count(told) == 1, "no heartbeat tells it")
    so_far = len(worker.events_named("lease_renewed"))
    worker.wait_for_event("lease_renewed", times=so_far + 2)  # it goes on as before
    assert database.job(job_id).state == "running"

    worker.send(signal.SIGTERM)

    assert worker.wait() == 0, worker.recent_output()
    assert database.job(job_id)[:2] == ("queued", 0)


def test_a_supervisor_does_not_start_again_who_was_asked_to_leave(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    supervisor = fleet.worker("--processes", "2", *LONG_LEASE, name="supervisor")
    first, second = id_of(supervisor), id_of(supervisor, 2)

    ask(database, first)
    supervisor.wait_for_event("process_drained", exit_code=0)
    assert database.registered() == 1
    assert (
        database.wait_for_state(database.enqueue(apps.pay)).attempts == 1
    )  # the other one works on
    ask(database, second)

    assert supervisor.wait() == 0, supervisor.recent_output()
    assert len(supervisor.events_named("process_drained")) == 2
    assert not supervisor.events_named("process_restarted")
    assert len(supervisor.events_named("worker_started")) == 2
    assert database.registered() == 0


def test_a_supervised_worker_that_leaves_by_itself_is_started_again(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    """One that has made as many attempts as it was given ends with 0 as well."""
    supervisor = fleet.worker("--processes", "2", "--max-jobs", "1", name="supervisor")
    supervisor.wait_for_event("worker_started", times=2)
    database.wait_for_state(database.enqueue(apps.pay))
    supervisor.wait_for_event("process_restarted", exit_code=0)
    supervisor.wait_for_event("worker_started", times=3)
