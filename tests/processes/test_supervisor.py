"""Several worker processes under one: started together, restarted when they die, stopped together."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.processes import apps
from tests.processes.fleet import Fleet
from tests.processes.stage import Stage
from tests.slow import slow_unless

TWO = ("--processes", "2", "--lease-seconds", "600")


def living_workers(stage: Stage) -> set[int]:
    query = "SELECT pid FROM faultline.workers WHERE lost_at IS NULL"
    return {pid for (pid,) in stage.conn.execute(query)}


def test_a_worker_that_is_killed_is_replaced_and_its_job_recovered(
    fleet: Fleet, stage: Stage
) -> None:
    supervisor = fleet.worker(*TWO, "--concurrency", "1", name="supervisor")
    supervisor.wait_for_event("worker_started", times=2)
    before = living_workers(stage)
    assert len(before) == 2
    assert supervisor.pid not in before
    job_id = stage.enqueue(apps.pay, gate="never")
    victim = stage.wait_for_mark(job_id)

    os.kill(victim, signal.SIGKILL)

    assert stage.wait_for_state(job_id)[:2] == ("succeeded", 2)
    assert stage.payments(job_id) == 1
    assert supervisor.wait_for_event("process_restarted")["pid"] == victim
    supervisor.wait_for_event("worker_started", times=3)
    stage.wait_until(lambda: victim not in living_workers(stage), "it is not known to be lost")
    after = living_workers(stage)
    assert len(after) == 2
    assert before - after == {victim}


def test_one_signal_to_the_supervisor_drains_every_worker(fleet: Fleet, stage: Stage) -> None:
    jobs = [stage.enqueue(apps.pay, gate="go") for _ in range(2)]
    supervisor = fleet.worker(*TWO, "--concurrency", "1", name="supervisor")
    at_work = {stage.wait_for_mark(job_id) for job_id in jobs}
    assert len(at_work) == 2

    supervisor.send(signal.SIGTERM)
    supervisor.wait_for_event("worker_draining", times=2)
    stage.open("go")

    assert supervisor.wait() == 0, supervisor.recent_output()
    assert stage.registered() == 0
    assert {stage.job(job_id)[:2] for job_id in jobs} == {("succeeded", 1)}
    assert not any(is_alive(pid) for pid in at_work)


@pytest.mark.slow
def test_a_second_signal_is_passed_on_too(fleet: Fleet, stage: Stage) -> None:
    jobs = [stage.enqueue(apps.pay, gate="never") for _ in range(2)]
    drain = ("--drain-seconds", "600")
    supervisor = fleet.worker(*TWO, *drain, "--concurrency", "1", name="supervisor")
    for job_id in jobs:
        stage.wait_for_mark(job_id)
    supervisor.send(signal.SIGTERM)
    supervisor.wait_for_event("worker_draining", times=2)

    supervisor.send(signal.SIGTERM)

    assert supervisor.wait() == 0, supervisor.recent_output()
    assert {stage.job(job_id)[:2] for job_id in jobs} == {("queued", 0)}


@pytest.mark.parametrize("how", slow_unless(["exit", "segfault", "kill"], "kill"))
def test_a_job_that_kills_its_workers_is_buried_and_the_queue_goes_on(
    fleet: Fleet, stage: Stage, how: str
) -> None:
    poison = stage.enqueue(apps.die, how=how)
    supervisor = fleet.worker(*TWO, "--concurrency", "1", name="supervisor")

    assert stage.wait_for_state(poison, "failed") == ("failed", 3, "poison", 3)
    supervisor.wait_for_event("job_dead", job_id=poison, reason="poison")
    # After two workers it is suspected, and its last attempt kills only a process of its own.
    assert stage.outcomes(poison) == ["worker_lost", "worker_lost", "failed"]
    assert stage.count("FROM stage.marks WHERE job_id = %s", [poison]) == 3

    others = [stage.enqueue(apps.pay) for _ in range(5)]
    for job_id in others:
        assert stage.wait_for_state(job_id)[:2] == ("succeeded", 1)
    stage.assert_paid_once_each(5)


@pytest.mark.slow
def test_a_job_that_kills_its_workers_does_not_take_its_neighbours_with_it(
    fleet: Fleet, stage: Stage
) -> None:
    neighbours = [stage.enqueue(apps.pay_beside, seconds=1) for _ in range(4)]
    poison = stage.enqueue(apps.die, how="kill")
    fleet.worker(*TWO, "--concurrency", "5", name="supervisor")

    assert stage.wait_for_state(poison, "failed").failed_reason == "poison"
    for job_id in neighbours:
        assert stage.wait_for_state(job_id, "succeeded", "failed").state == "succeeded"
    stage.assert_paid_once_each(4)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for the first child in /proc")
def test_a_supervisor_that_is_told_to_stop_while_it_starts_its_workers_stops_them_too(
    fleet: Fleet, stage: Stage
) -> None:
    for _ in range(3):  # the moment cannot be hit every time
        supervisor = fleet.worker(*TWO, name="supervisor")
        children = Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children")
        stage.wait_until(lambda: bool(children.read_text()), "it starts nothing")  # noqa: B023
        supervisor.send(signal.SIGTERM)
        assert supervisor.wait() == 0, supervisor.recent_output()
    assert stage.registered() == 0


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
