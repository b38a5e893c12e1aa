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
from tests.processes.stage import Stage
from tests.slow import slow_unless

JOBS = 200


@pytest.fixture
def url(own_server: embedded.Server) -> str:
    """Of a server of the test's own, up and with the schema."""
    own_server.start()
    migrate(own_server.url)
    with psycopg.connect(own_server.url, autocommit=True) as conn:
        Stage.build(conn)
    return own_server.url


@pytest.fixture
def own_fleet(url: str) -> Iterator[Fleet]:
    fleet = Fleet(url)
    yield fleet
    fleet.end()


@contextlib.contextmanager
def looking_at(url: str) -> Iterator[Stage]:
    with psycopg.connect(url, autocommit=True) as conn:
        yield Stage(conn)


def was_missed_at_once(other: Process, stage: Stage, job_id: UUID) -> None:
    """Long before its lease would have run out, which takes ten minutes."""
    reaped = other.wait_for_event("lease_reaped", job_id=job_id)
    assert reaped["cause"] == "worker_lost"
    assert stage.wait_for_state(job_id)[:2] == ("succeeded", 2)
    assert stage.payments(job_id) == 1


@pytest.mark.parametrize("mode", slow_unless(["fast", "immediate"], "immediate"))
def test_a_restart_under_load_costs_no_job_and_repeats_no_effect(
    own_server: embedded.Server, own_fleet: Fleet, url: str, mode: Literal["fast", "immediate"]
) -> None:
    options = ("--concurrency", "4", "--lease-seconds", "5")
    workers = [own_fleet.started(*options, name=f"worker {n}") for n in range(2)]
    with looking_at(url) as stage:
        # However fast the rest is done, these are in the middle of their transactions.
        unfinished = [stage.enqueue(apps.pay_slowly, gate="never") for _ in workers]
        payloads = [{"seconds": 0.05}] * (JOBS // 2)
        apps.pay_in_the_database.enqueue_many(payloads, conn=stage.conn)
        apps.answer.enqueue_many([{}] * (JOBS // 2), conn=stage.conn)
        paid = "FROM stage.payments"
        stage.wait_until(lambda: stage.count(paid) >= 10, "nothing is paid")
        for job_id in unfinished:
            stage.wait_for_mark(job_id)

    own_server.stop(mode=mode)
    for worker in workers:
        worker.wait_for_event("database_unavailable")
    own_server.start()

    with looking_at(url) as stage:
        stage.wait_for_all(JOBS + len(unfinished))
        stage.assert_paid_once_each(JOBS // 2 + len(unfinished))
        assert stage.registered() == 2
        assert {stage.job(job_id)[:2] for job_id in unfinished} == {("succeeded", 1)}
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
    with looking_at(url) as stage:
        job_id = stage.enqueue(apps.cannot_be_interrupted, in_transaction=False)
        stage.wait_for_mark(job_id)
    own_server.stop()
    killed.wait_for_event("database_unavailable")
    own_server.start()
    so_far = len(killed.events_named("lease_renewed"))
    killed.wait_for_event("lease_renewed", times=so_far + 1)
    with looking_at(url) as stage:
        other = own_fleet.started(*options, name="other")

        killed.kill()

        was_missed_at_once(other, stage, job_id)


@pytest.mark.slow
def test_the_death_of_a_worker_is_noticed_at_once_after_a_restart_that_it_was_idle_in(
    own_server: embedded.Server, own_fleet: Fleet, url: str
) -> None:
    options = ("--lease-seconds", "600", "--concurrency", "2")
    killed = own_fleet.started(*options, name="killed")
    own_server.stop()
    own_server.start()
    killed.wait_for_event("database_back")
    with looking_at(url) as stage:
        job_id = stage.enqueue(apps.pay, gate="never")
        stage.wait_for_mark(job_id)
        other = own_fleet.started(*options, name="other")

        killed.kill()

        was_missed_at_once(other, stage, job_id)


def test_a_worker_that_finds_no_server_waits_for_it(
    own_server: embedded.Server, own_fleet: Fleet, url: str
) -> None:
    with looking_at(url) as stage:
        job_id = stage.enqueue(apps.pay)
    own_server.stop()
    worker = own_fleet.worker()
    worker.wait_for_event("database_unavailable", purpose="worker")
    assert worker.is_alive

    own_server.start()

    worker.wait_for_event("worker_started")
    worker.wait_for_event("commit_ok", job_id=job_id)
    with looking_at(url) as stage:
        assert stage.payments(job_id) == 1


@pytest.mark.slow
def test_a_worker_that_finds_the_server_full_waits_for_a_free_connection(
    own_fleet: Fleet, url: str
) -> None:
    with contextlib.ExitStack() as crowd:
        stage = Stage(crowd.enter_context(psycopg.connect(url, autocommit=True)))
        job_id = stage.enqueue(apps.pay)
        fill(url, stage, crowd)
        worker = own_fleet.worker()
        unavailable = worker.wait_for_event("database_unavailable", purpose="worker")
        assert "too many clients" in unavailable["error"]
        assert worker.is_alive

    worker.wait_for_event("worker_started")
    worker.wait_for_event("commit_ok", job_id=job_id)
    with looking_at(url) as stage:
        assert stage.payments(job_id) == 1


def fill(url: str, stage: Stage, crowd: contextlib.ExitStack) -> None:
    """Every place is ours then: a session that was closed keeps its own until its backend has left."""
    (places,) = stage.wait_for_row("SHOW max_connections", [], "no answer")
    for _ in range(int(places) - 1):  # one is the stage's
        stage.wait_until(lambda: has_entered(url, crowd), "somebody does not leave")


def has_entered(url: str, crowd: contextlib.ExitStack) -> bool:
    try:
        crowd.enter_context(psycopg.connect(url))
    except psycopg.OperationalError as error:
        assert "too many clients" in str(error)  # noqa: PT017 - it may come on the way
        return False
    return True
