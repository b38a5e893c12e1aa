"""A draining worker finishes or releases its jobs and leaves nothing behind."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from faultline.task import Task
from faultline_drills.proxy import Action, Match, Proxy
from faultline_drills.proxy.wire import MessageKind
from tests.processes import apps
from tests.processes.fleet import Fleet
from tests.processes.observed_database import BOUND_SECONDS, ObservedDatabase
from tests.slow import slow_unless

pytestmark = pytest.mark.forks

# Renewed so often that a short pause of the worker does not lose it.
KEPT_LEASE = ("--lease-seconds", "3", "--heartbeat-seconds", "0.25")
LONG_LEASE = ("--lease-seconds", "600")
LONG_DRAIN = ("--drain-seconds", "600")
SHORT_DRAIN = ("--drain-seconds", "0.2")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "task", [apps.pay, apps.pay_slowly_plain], ids=lambda task: task.handler.__name__
)
def test_a_running_job_is_finished_and_no_other_is_started(
    fleet: Fleet, database: ObservedDatabase, task: Task[..., Any], number: signal.Signals
) -> None:
    job_id = database.enqueue(task, gate="go")
    worker = fleet.started(*LONG_LEASE, *LONG_DRAIN)
    database.wait_for_mark(job_id)

    worker.send(number)
    worker.wait_for_event("worker_draining", running=1)
    draining = "FROM faultline.workers WHERE draining"
    database.wait_until(lambda: database.count(draining) == 1, "it is not marked as draining")
    late = database.enqueue(apps.pay)
    database.open("go")

    assert worker.wait() == 0, worker.recent_output()
    assert database.job(job_id)[:2] == ("succeeded", 1)
    assert database.payments(job_id) == 1
    assert database.job(late)[:2] == ("queued", 0)
    assert database.count("FROM faultline.workers") == 0
    assert worker.events_named("worker_stopped", jobs=1, stuck_threads=0)


@pytest.mark.slow
def test_leases_are_renewed_while_running_jobs_finish(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    job_id = database.enqueue(apps.pay, gate="go")
    worker = fleet.started(*KEPT_LEASE, *LONG_DRAIN, name="draining")
    database.wait_for_mark(job_id)
    other = fleet.started(*LONG_LEASE, name="other")
    worker.send(signal.SIGTERM)
    worker.wait_for_event("worker_draining")
    database.wait_past_the_lease(job_id)
    database.open("go")

    assert worker.wait() == 0, worker.recent_output()
    assert database.job(job_id)[:2] == ("succeeded", 1)
    assert worker.events_named("commit_ok", job_id=job_id, token=1)
    assert database.payments(job_id) == 1
    assert not other.events_named("lease_acquired")


@pytest.mark.parametrize("task", apps.PAYING, ids=lambda task: task.handler.__name__)
def test_a_job_that_does_not_finish_in_time_is_released_without_using_an_attempt(
    fleet: Fleet, database: ObservedDatabase, task: Task[..., Any]
) -> None:
    job_id = database.enqueue(task, gate="go")
    worker = fleet.started(*LONG_LEASE, *SHORT_DRAIN)
    database.wait_for_mark(job_id)

    worker.send(signal.SIGTERM)

    assert worker.wait() == 0, worker.recent_output()
    assert worker.events_named("job_released", job_id=job_id, token=1)
    assert database.job(job_id)[:2] == ("queued", 0)
    assert database.outcomes(job_id) == ["released"]
    assert database.payments(job_id) == 0
    assert database.count("FROM faultline.workers") == 0
    # the next worker makes the first attempt
    database.open("go")
    fleet.started(*LONG_LEASE, name="next")
    assert database.wait_for_state(job_id)[:2] == ("succeeded", 1)
    assert database.payments(job_id) == 1


def test_a_second_signal_releases_the_jobs_at_once(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    job_id = database.enqueue(apps.pay, gate="never")
    worker = fleet.started(*LONG_LEASE, *LONG_DRAIN)
    database.wait_for_mark(job_id)
    worker.send(signal.SIGTERM)
    worker.wait_for_event("worker_draining")
    assert database.job(job_id)[:2] == ("running", 1)

    worker.send(signal.SIGTERM)

    assert worker.wait() == 0, worker.recent_output()
    assert database.job(job_id)[:2] == ("queued", 0)
    assert database.count("FROM faultline.workers") == 0


@pytest.mark.parametrize("in_transaction", slow_unless([False, True], True))
def test_an_uninterruptible_handler_delays_neither_the_exit_nor_the_job(
    fleet: Fleet, database: ObservedDatabase, in_transaction: bool
) -> None:
    job_id = database.enqueue(apps.cannot_be_interrupted, in_transaction=in_transaction)
    worker = fleet.started(*LONG_LEASE, *SHORT_DRAIN)
    database.wait_for_mark(job_id)

    worker.send(signal.SIGTERM)

    assert worker.wait() == 1, worker.recent_output()  # not a clean end
    assert worker.events_named("worker_stopped", stuck_threads=1)
    [stuck] = [each for each in worker.events_named("degraded", job_id=job_id) if "task" in each]
    assert "in block_thread: time.sleep" in stuck["frame"]
    assert "in cannot_be_interrupted" in stuck["stack"]
    assert stuck["frame"].split(":")[0] in stuck["stack"]
    assert database.job(job_id)[:2] == ("queued", 0)
    fleet.started(*LONG_LEASE, name="next")
    assert database.wait_for_state(job_id)[:2] == ("succeeded", 1)
    assert database.payments(job_id) == 1


@pytest.mark.slow
def test_an_async_handler_that_ignores_cancellation_does_not_keep_the_process_alive(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    job_id = database.enqueue(apps.will_not_be_cancelled)
    worker = fleet.started(*LONG_LEASE, *SHORT_DRAIN)
    database.wait_for_mark(job_id)

    worker.send(signal.SIGTERM)
    database.wait_for_mark(job_id, "refused to be cancelled")

    assert worker.wait() == 1, worker.recent_output()
    assert database.count("FROM faultline.workers") == 0


def test_an_idle_worker_stops_at_once(fleet: Fleet, database: ObservedDatabase) -> None:
    worker = fleet.started(*LONG_DRAIN, "--poll-seconds", "600")
    database.wait_for_session("heartbeat", "faultline.heartbeat(")  # only then is it idle
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0, worker.recent_output()
    assert database.count("FROM faultline.workers") == 0


@pytest.mark.parametrize("service", ["worker", "reconciler"])
def test_sigterm_during_a_connection_failure_is_not_lost(
    fleet: Fleet, database: ObservedDatabase, proxy: Proxy, service: str
) -> None:
    """The driver cancels its query then; if that fails, it raises only that error."""
    start = fleet.worker if service == "worker" else fleet.reconciler
    process = start(url=proxy.url)
    look = proxy.on(Match(text="vanished_workers", nth=3), Action.HOLD)
    assert look.wait(BOUND_SECONDS), process.recent_output()

    process.send(signal.SIGTERM)
    database.wait_until(
        lambda: any(message.kind is MessageKind.CANCEL for message in proxy.log),
        "no query is cancelled",
    )
    proxy.reset_all()
    proxy.clear_faults()

    assert process.wait() == 0, process.recent_output()
