"""A supervisor starts several worker processes, restarts dead ones, and stops all."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.processes import apps
from tests.processes.fleet import Fleet
from tests.processes.observed_database import ObservedDatabase
from tests.slow import slow_unless

TWO = ("--processes", "2", "--lease-seconds", "600")


def living_workers(database: ObservedDatabase) -> set[int]:
    query = "SELECT pid FROM faultline.workers WHERE lost_at IS NULL"
    return {pid for (pid,) in database.conn.execute(query)}


def test_a_killed_worker_is_replaced_and_its_job_recovered(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    supervisor = fleet.worker(*TWO, "--concurrency", "1", name="supervisor")
    supervisor.wait_for_event("worker_started", times=2)
    before = living_workers(database)
    assert len(before) == 2
    assert supervisor.pid not in before
    job_id = database.enqueue(apps.pay, gate="never")
    victim = database.wait_for_mark(job_id)

    os.kill(victim, signal.SIGKILL)

    assert database.wait_for_state(job_id)[:2] == ("succeeded", 2)
    assert database.payments(job_id) == 1
    assert supervisor.wait_for_event("process_restarted")["pid"] == victim
    supervisor.wait_for_event("worker_started", times=3)
    database.wait_until(
        lambda: victim not in living_workers(database), "it is not known to be lost"
    )
    after = living_workers(database)
    assert len(after) == 2
    assert before - after == {victim}


def test_one_signal_to_the_supervisor_drains_every_worker(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    jobs = [database.enqueue(apps.pay, gate="go") for _ in range(2)]
    supervisor = fleet.worker(*TWO, "--concurrency", "1", name="supervisor")
    at_work = {database.wait_for_mark(job_id) for job_id in jobs}
    assert len(at_work) == 2

    supervisor.send(signal.SIGTERM)
    supervisor.wait_for_event("worker_draining", times=2)
    database.open("go")

    assert supervisor.wait() == 0, supervisor.recent_output()
    assert database.registered() == 0
    assert {database.job(job_id)[:2] for job_id in jobs} == {("succeeded", 1)}
    assert not any(is_alive(pid) for pid in at_work)


@pytest.mark.slow
def test_a_second_signal_is_passed_on_too(fleet: Fleet, database: ObservedDatabase) -> None:
    jobs = [database.enqueue(apps.pay, gate="never") for _ in range(2)]
    drain = ("--drain-seconds", "600")
    supervisor = fleet.worker(*TWO, *drain, "--concurrency", "1", name="supervisor")
    for job_id in jobs:
        database.wait_for_mark(job_id)
    supervisor.send(signal.SIGTERM)
    supervisor.wait_for_event("worker_draining", times=2)

    supervisor.send(signal.SIGTERM)

    assert supervisor.wait() == 0, supervisor.recent_output()
    assert {database.job(job_id)[:2] for job_id in jobs} == {("queued", 0)}


@pytest.mark.parametrize("how", slow_unless(["exit", "segfault", "kill"], "kill"))
def test_a_job_that_kills_its_workers_becomes_dead_and_the_queue_continues(
    fleet: Fleet, database: ObservedDatabase, how: str
) -> None:
    poison = database.enqueue(apps.die, how=how)
    supervisor = fleet.worker(*TWO, "--concurrency", "1", name="supervisor")

    assert database.wait_for_state(poison, "failed") == ("failed", 3, "poison", 3)
    supervisor.wait_for_event("job_dead", job_id=poison, reason="poison")
    # After two killed workers its last attempt runs in a child process, and kills only that.
    assert database.outcomes(poison) == ["worker_lost", "worker_lost", "failed"]
    assert database.count("FROM app.marks WHERE job_id = %s", [poison]) == 3

    others = [database.enqueue(apps.pay) for _ in range(5)]
    for job_id in others:
        assert database.wait_for_state(job_id)[:2] == ("succeeded", 1)
    database.assert_paid_once_each(5)


@pytest.mark.slow
def test_a_job_that_kills_its_workers_does_not_make_other_jobs_dead(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    neighbours = [database.enqueue(apps.pay_beside, seconds=1) for _ in range(4)]
    poison = database.enqueue(apps.die, how="kill")
    fleet.worker(*TWO, "--concurrency", "5", name="supervisor")

    assert database.wait_for_state(poison, "failed").failed_reason == "poison"
    for job_id in neighbours:
        assert database.wait_for_state(job_id, "succeeded", "failed").state == "succeeded"
    database.assert_paid_once_each(4)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for the first child in /proc")
def test_a_supervisor_stopped_while_it_starts_its_workers_stops_them_too(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    for _ in range(3):  # the signal does not hit that moment every time
        supervisor = fleet.worker(*TWO, name="supervisor")
        children = Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children")
        database.wait_until(lambda: bool(children.read_text()), "it starts nothing")  # noqa: B023
        supervisor.send(signal.SIGTERM)
        assert supervisor.wait() == 0, supervisor.recent_output()
    assert database.registered() == 0


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
