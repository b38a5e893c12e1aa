"""The database goes away under running workers, or is not there when they start: they wait for it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal
from uuid import UUID

import psycopg
import pytest

from faultline import embedded
from faultline.postgres.migrate import migrate
from tests.processes import apps
from tests.processes.fleet import Fleet, Process
from tests.processes.observed_database import ObservedDatabase
from tests.slow import slow_unless

JOBS = 200


@pytest.fixture
def url(own_server: embedded.Server) -> str:
    """Of a server of the test's own, up and with the schema."""
    own_server.start()
    migrate(own_server.url)
    with psycopg.connect(own_server.url, autocommit=True) as conn:
        ObservedDatabase.build(conn)
    return own_server.url


@pytest.fixture
def own_fleet(url: str) -> Iterator[Fleet]:
    fleet = Fleet(url)
    yield fleet
    fleet.end()


@contextlib.contextmanager
def looking_at(url: str) -> Iterator[ObservedDatabase]:
    with psycopg.connect(url, autocommit=True) as conn:
        yield ObservedDatabase(conn)


def was_missed_at_once(other: Process, database: ObservedDatabase, job_id: UUID) -> None:
    """Long before its lease would have run out, which takes ten minutes."""
    reaped = other.wait_for_event("lease_reaped", job_id=job_id)
    assert reaped["cause"] == "worker_lost"
    assert database.wait_for_state(job_id)[:2] == ("succeeded", 2)
    assert database.payments(job_id) == 1


@pytest.mark.parametrize("mode", slow_unless(["fast", "immediate"], "immediate"))
def test_a_restart_under_load_costs_no_job_and_repeats_no_effect(
    own_server: embedded.Server, own_fleet: Fleet, url: str, mode: Literal["fast", "immediate"]
) -> None:
    options = ("--concurrency", "4", "--lease-seconds", "5")
    workers = [own_fleet.started(*options, name=f"worker {n}") for n in range(2)]
    with looking_at(url) as database:
        # However fast the rest is done, these are in the middle of their transactions.
        unfinished = [database.enqueue(apps.pay_slowly, gate="never") for _ in workers]
        payloads = [{"seconds": 0.05}] * (JOBS // 2)
        apps.pay_in_the_database.enqueue_many(payloads, conn=database.conn)
        apps.answer.enqueue_many([{}] * (JOBS // 2), conn=database.conn)
        paid = "FROM app.payments"
        database.wait_until(lambda: database.count(paid) >= 10, "nothing is paid")
        for job_id in unfinished:
            database.wait_for_mark(job_id)

    own_server.stop(mode=mode)
    for worker in workers:
        worker.wait_for_event("database_unavailable")
    own_server.start()

    with looking_at(url) as database:
        database.wait_for_all(JOBS + len(unfinished))
        database.assert_paid_once_each(JOBS // 2 + len(unfinished))
        assert database.registered() == 2
        assert {database.job(job_id)[:2] for job_id in unfinished} == {("succeeded", 1)}
    for worker in workers:
        worker.wait_for_event("database_back")
        assert worker.is_alive


@pytest.mark.slow
def test_the_death_of_a_worker_is_noticed_at_once_after_a_restart_although_it_was_busy(
    own_server: embedded.Server, own_fleet: Fleet, url: str
) -> None:
    """It has no free slot, so it claims nothing that would tell it of the restart."""
    options = ("--lease-seconds", "600", "--heartbeat-seconds", "0.5", "--concurrency", "1")
    killed = own_fleet.started(*options, name="killed")
    with looking_at(url) as database:
        job_id = database.enqueue(apps.cannot_be_interrupted, in_transaction=False)
        database.wait_for_mark(job_id)
    own_server.stop()
    killed.wait_for_event("database_unavailable")
    own_server.start()
    so_far = len(killed.events_named("lease_renewed"))
    killed.wait_for_event("lease_renewed", times=so_far + 1)
    with looking_at(url) as database:
        other = own_fleet.started(*options, name="other")

        killed.kill()

        was_missed_at_once(other, database, job_id)


@pytest.mark.slow
def test_the_death_of_a_worker_is_noticed_at_once_after_a_restart_that_it_was_idle_in(
    own_server: embedded.Server, own_fleet: Fleet, url: str
) -> None:
    options = ("--lease-seconds", "600", "--concurrency", "2")
    killed = own_fleet.started(*options, name="killed")
    own_server.stop()
    own_server.start()
    killed.wait_for_event("database_back")
    with looking_at(url) as database:
        job_id = database.enqueue(apps.pay, gate="never")
        database.wait_for_mark(job_id)
        other = own_fleet.started(*options, name="other")

        killed.kill()

        was_missed_at_once(other, database, job_id)


def test_a_worker_that_finds_no_server_waits_for_it(
    own_server: embedded.Server, own_fleet: Fleet, url: str
) -> None:
    with looking_at(url) as database:
        job_id = database.enqueue(apps.pay)
    own_server.stop()
    worker = own_fleet.worker()
    worker.wait_for_event("database_unavailable", purpose="worker")
    assert worker.is_alive

    own_server.start()

    worker.wait_for_event("worker_started")
    worker.wait_for_event("commit_ok", job_id=job_id)
    with looking_at(url) as database:
        assert database.payments(job_id) == 1


@pytest.mark.slow
def test_a_worker_that_finds_the_server_full_waits_for_a_free_connection(
    own_fleet: Fleet, url: str
) -> None:
    with contextlib.ExitStack() as crowd:
        database = ObservedDatabase(crowd.enter_context(psycopg.connect(url, autocommit=True)))
        job_id = database.enqueue(apps.pay)
        fill(url, database, crowd)
        worker = own_fleet.worker()
        unavailable = worker.wait_for_event("database_unavailable", purpose="worker")
        assert "too many clients" in unavailable["error"]
        assert worker.is_alive

    worker.wait_for_event("worker_started")
    worker.wait_for_event("commit_ok", job_id=job_id)
    with looking_at(url) as database:
        assert database.payments(job_id) == 1


def fill(url: str, database: ObservedDatabase, crowd: contextlib.ExitStack) -> None:
    """Every place is ours then: a session that was closed keeps its own until its backend has left."""
    (places,) = database.wait_for_row("SHOW max_connections", [], "no answer")
    for _ in range(int(places) - 1):  # one is the database's
        database.wait_until(lambda: has_entered(url, crowd), "somebody does not leave")


def has_entered(url: str, crowd: contextlib.ExitStack) -> bool:
    try:
        crowd.enter_context(psycopg.connect(url))
    except psycopg.OperationalError as error:
        assert "too many clients" in str(error)  # noqa: PT017 - it may come on the way
        return False
    return True
