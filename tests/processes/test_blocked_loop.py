"""A blocked event loop delays neither other jobs nor the process's exit."""

from __future__ import annotations

import signal
from pathlib import Path
from uuid import UUID

import pytest

from tests.cli.conftest import invoke
from tests.processes import apps
from tests.processes.fifo import make_fifo, unblock
from tests.processes.fleet import Fleet, Process
from tests.processes.observed_database import ObservedDatabase

LONG_LEASE = ("--lease-seconds", "600")
KEPT_LEASE = ("--lease-seconds", "3", "--heartbeat-seconds", "0.25")
SHORT_STALL = ("--stall-seconds", "1")
BLOCKED = "SELECT blocked_job, blocked_frame, blocked_stack FROM faultline.workers WHERE id = %s"


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    return make_fifo(tmp_path)


def test_jobs_not_yet_started_run_elsewhere_and_the_blocking_frame_is_reported(
    fleet: Fleet, database: ObservedDatabase, fifo: Path, database_url: str
) -> None:
    blocking = database.enqueue(apps.block_at_once, fifo=str(fifo))
    beside = [database.enqueue(apps.pay) for _ in range(3)]
    blocked = fleet.started(*LONG_LEASE, *SHORT_STALL, name="blocked")
    event = blocked.wait_for_event("loop_blocked", job_id=blocking)
    for job_id in beside:
        blocked.wait_for_event("job_released", job_id=job_id)
    fleet.started(*LONG_LEASE, name="other")

    for job_id in beside:  # long before their first leases would have expired
        assert database.wait_for_state(job_id)[:2] == ("succeeded", 1)
    assert "in block_at_once" in event["stack"]
    worker = event["worker"]
    seen = database.wait_for_row(f"{BLOCKED} AND blocked_job IS NOT NULL", [worker], "no report")
    assert seen == (blocking, event["frame"], event["stack"])
    answer = invoke(database_url, "why", str(blocking), "--json").json
    assert (answer["code"], answer["facts"]["blocked_frame"]) == ("loop_blocked", event["frame"])

    unblock(database, fifo)

    blocked.wait_for_event("commit_ok", job_id=blocking, token=1)
    blocked.wait_for_event("loop_resumed")
    query = f"{BLOCKED} AND blocked_since IS NULL AND blocked_frame IS NULL"
    database.wait_for_row(query, [worker], "the report stays")
    database.assert_paid_once_each(4)


@pytest.mark.slow
def test_started_jobs_of_a_blocked_loop_are_taken_over_and_threads_continue(
    fleet: Fleet, database: ObservedDatabase, fifo: Path
) -> None:
    beside = database.enqueue(apps.pay, gate="never")
    in_thread = database.enqueue(apps.pay_plain, gate="go")
    blocked = fleet.started(*KEPT_LEASE, *SHORT_STALL, name="blocked")
    database.wait_for_mark(beside)
    database.wait_for_mark(in_thread)
    blocking = database.enqueue(apps.block_the_loop, fifo=str(fifo))
    blocked.wait_for_event("loop_blocked", job_id=blocking)
    fleet.started(*LONG_LEASE, name="other")

    assert database.wait_for_state(beside)[:2] == ("succeeded", 2)
    assert database.wait_for_state(blocking)[:2] == ("succeeded", 2)
    database.open("go")  # without renewals its first lease would have expired by now
    assert database.wait_for_state(in_thread)[:2] == ("succeeded", 1)

    unblock(database, fifo)

    for job_id in (beside, blocking):
        blocked.wait_for_event("worker_exit", job_id=job_id, token=1, reason="stale")
    later = database.enqueue(apps.answer)
    database.wait_for_state(later)
    database.assert_paid_once_each(3)


def test_a_timeout_while_the_loop_is_blocked_ends_the_process(
    fleet: Fleet, database: ObservedDatabase, fifo: Path
) -> None:
    job_id = database.enqueue(apps.block_past_the_timeout, fifo=str(fifo))
    beside = database.enqueue(apps.pay)
    worker = fleet.started(*LONG_LEASE, *SHORT_STALL)

    assert worker.wait() == 1, worker.recent_output()
    [ended] = [event for event in worker.events_named("degraded") if "stack" in event]
    assert "ran longer than 0.5 s and blocks the event loop" in ended["reason"]
    assert "in block_past_the_timeout" in ended["stack"]
    assert database.outcomes(job_id) == ["failed"]
    error = (
        "SELECT last_error FROM faultline.jobs WHERE id = %s AND last_error LIKE 'AttemptTimeout%%'"
    )
    database.wait_for_row(error, [job_id], "the attempt did not fail by its timeout")
    assert database.job(beside)[:2] == ("queued", 0)


@pytest.mark.parametrize("signals", [1, 2])
def test_sigterm_ends_a_process_whose_loop_is_blocked(
    fleet: Fleet, database: ObservedDatabase, fifo: Path, signals: int
) -> None:
    job_id = database.enqueue(apps.block_at_once, fifo=str(fifo))
    drain = ("--drain-seconds", "0.2" if signals == 1 else "600")
    worker = fleet.started(*LONG_LEASE, *drain)
    database.wait_for_mark(job_id)

    worker.send(signal.SIGTERM)
    if signals == 2:  # the kernel merges two signals that are pending at the same time
        database.wait_until(lambda: _send_again(worker), "it does not end")

    assert worker.wait() == 1, worker.recent_output()
    [ended] = [event for event in worker.events_named("degraded") if "stack" in event]
    assert "in block_at_once" in ended["stack"]
    assert _queued_unspent(database, job_id)


@pytest.mark.slow
def test_a_thread_that_a_handler_left_behind_does_not_keep_the_process_alive(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    job_id = database.enqueue(apps.leave_a_thread_behind)
    worker = fleet.started(*LONG_LEASE, "--drain-seconds", "0.2")
    database.wait_for_mark(job_id)

    worker.send(signal.SIGTERM)

    assert worker.wait() == 1, worker.recent_output()
    reasons = [event["reason"] for event in worker.events_named("degraded")]
    assert [reason for reason in reasons if "does not end" in reason], reasons
    assert _queued_unspent(database, job_id)


def _send_again(worker: Process) -> bool:
    worker.send(signal.SIGTERM)
    return not worker.is_alive


def _queued_unspent(database: ObservedDatabase, job_id: UUID) -> bool:
    return database.job(job_id)[:2] == ("queued", 0) and database.outcomes(job_id) == ["released"]
