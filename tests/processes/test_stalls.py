"""Jobs of stopped or disconnected workers run elsewhere and take effect once."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from faultline.task import Task
from faultline_drills.proxy import Proxy
from tests.processes import apps
from tests.processes.fifo import make_fifo, unblock
from tests.processes.fleet import Fleet
from tests.processes.observed_database import ObservedDatabase
from tests.slow import slow_unless

LONG_LEASE = ("--lease-seconds", "600")
# Long enough that a short pause of the machine does not lose the lease.
KEPT_LEASE = ("--lease-seconds", "3", "--heartbeat-seconds", "0.25")


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    return make_fifo(tmp_path)


@pytest.mark.parametrize(
    "task", slow_unless(apps.PAYING, apps.PAYING[0]), ids=lambda task: task.handler.__name__
)
def test_a_worker_stopped_past_its_lease_abandons_the_attempt_when_it_resumes(
    fleet: Fleet, database: ObservedDatabase, task: Task[..., Any]
) -> None:
    job_id = database.enqueue(task, gate="never")
    stopped = fleet.started(*KEPT_LEASE, name="stopped")
    database.wait_for_mark(job_id)
    stopped.send(signal.SIGSTOP)
    database.expire(job_id)
    other = fleet.started(*LONG_LEASE, name="other")
    assert database.wait_for_state(job_id)[:2] == ("succeeded", 2)
    other.wait_for_event("commit_ok", job_id=job_id, token=2)

    stopped.send(signal.SIGCONT)

    stopped.wait_for_event("lease_lost", job_id=job_id, token=1)
    stopped.wait_for_event("worker_exit", job_id=job_id, token=1, reason="stale")
    assert not stopped.events_named("commit_ok")
    assert database.payments(job_id) == 1
    database.assert_in_order()
    # and it runs further jobs
    other.kill()
    later = database.enqueue(apps.pay)
    stopped.wait_for_event("commit_ok", job_id=later, token=1)


@pytest.mark.slow
def test_a_handler_that_holds_the_interpreter_past_its_lease_is_refused(
    fleet: Fleet, database: ObservedDatabase, fifo: Path
) -> None:
    job_id = database.enqueue(apps.hold_the_gil, fifo=str(fifo))
    stalled = fleet.started(*KEPT_LEASE, name="stalled")
    database.wait_for_mark(job_id)
    fleet.started(*LONG_LEASE, name="other")
    assert database.wait_for_state(job_id)[:2] == ("succeeded", 2)

    unblock(database, fifo)

    stalled.wait_for_event("worker_exit", job_id=job_id, token=1, reason="stale")
    assert not stalled.events_named("commit_ok")
    assert database.payments(job_id) == 1
    database.assert_in_order()


def test_a_handler_that_blocks_the_event_loop_for_less_than_the_limit_keeps_its_lease(
    fleet: Fleet, database: ObservedDatabase, fifo: Path
) -> None:
    job_id = database.enqueue(apps.block_the_loop, fifo=str(fifo))
    blocked = fleet.started(*KEPT_LEASE, "--stall-seconds", "600", name="blocked")
    database.wait_for_mark(job_id)
    other = fleet.started(*LONG_LEASE, name="other")
    database.wait_past_the_lease(job_id)

    unblock(database, fifo)

    blocked.wait_for_event("commit_ok", job_id=job_id, token=1)
    assert database.job(job_id)[:2] == ("succeeded", 1)
    assert database.payments(job_id) == 1
    assert not other.events_named("lease_reaped")


@pytest.mark.parametrize(
    "task", [apps.pay, apps.pay_slowly_plain], ids=lambda task: task.handler.__name__
)
def test_a_disconnected_worker_fences_itself_before_others_take_over(
    fleet: Fleet, database: ObservedDatabase, proxy: Proxy, task: Task[..., Any]
) -> None:
    """Its connections neither work nor break, so it gets no error."""
    job_id = database.enqueue(task, gate="never")
    lonely = fleet.started("--lease-seconds", "3", name="lonely", url=proxy.url)
    database.wait_for_mark(job_id)
    proxy.blackhole()
    lost = lonely.wait_for_event("lease_lost", job_id=job_id, token=1)
    assert lost["cause"] == "deadline"
    assert database.job(job_id).attempts == 1  # no other worker has claimed it yet

    fleet.started(*LONG_LEASE, name="other")
    assert database.wait_for_state(job_id)[:2] == ("succeeded", 2)
    proxy.clear_faults()

    lonely.wait_for_event("worker_exit", job_id=job_id, token=1, reason="stale")
    assert database.payments(job_id) == 1
    database.assert_in_order()
