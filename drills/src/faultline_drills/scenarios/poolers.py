"""Workers reach the database through PgBouncer, which fails in three ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from faultline.statements.workers import LOCK_CLASS
from faultline_drills.context import DrillContext
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.processes.stalled_worker import resume_until_done, stalled_worker
from faultline_drills.scenario import scenario
from faultline_drills.servers.pooler import (
    SESSION,
    TRANSACTION,
    Pooler,
    missing_requirement,
    pooler_to,
)
from faultline_drills.workload.tasks import note, pay, pay_by_hand

SHOWS = (
    "stops",
    "backend_kills",
    "pauses",
    "pooler_kills",
    "takeovers",
    "stale_rejections",
    "commits",
)
# Fewer than the clients in transaction mode, which share them; enough for all in session mode.
_POOL = {TRANSACTION: "6", SESSION: "60"}


@scenario(shows=SHOWS, breaks_naive=True, missing_requirement=missing_requirement)
def transaction_pooler(drill: DrillContext) -> None:
    """Workers behind PgBouncer in transaction mode, which fails in three ways.

    A session belongs to another client after each COMMIT: LISTEN, session locks and session
    settings do not work. The workers must log what they lose, poll, and wait for leases to expire.
    One worker stalls and resumes late; then the server terminates the shared connections, PgBouncer
    is paused for longer than a lease, and killed. Nothing may take effect twice.
    """
    _run(drill, TRANSACTION)


@scenario(
    shows=SHOWS, missing_requirement=missing_requirement
)  # transaction_pooler shows that the control breaks
def session_pooler(drill: DrillContext) -> None:
    """Workers behind PgBouncer in session mode, which fails in three ways.

    Each worker has a server connection to itself, but cannot tell this mode from transaction mode,
    and must rely on no more. The faults are the same, and nothing may take effect twice.
    """
    _run(drill, SESSION)


def _run(drill: DrillContext, mode: str) -> None:
    settings = {"default_pool_size": _POOL[mode]}
    pooler = drill.stack.enter_context(pooler_to(drill.url, mode=mode, settings=settings))
    url = pooler.url(drill.url)
    jobs = drill.settings.jobs
    for number in range(jobs):
        drill.submit((note, pay)[number % 2], number=number, plan={"1": "stop@start"})
    late = stalled_worker(drill, url=url)
    workers = [
        drill.worker(name=f"steady-{number + 1}", url=url)
        for number in range(drill.settings.workers)
    ]
    drill.wait_until(
        lambda: drill.count("SELECT count(*) FROM faultline.ledger") == jobs, "the takeover"
    )
    resume_until_done(drill, late, attempts=jobs)
    for worker in (late, *workers):
        _expect_degradation(drill, worker)
    drill.stop_workers([late])
    _expect_no_session_locks(drill)

    _submit_more(drill)
    _end_server_connections(drill)
    _wait_for_all(drill)
    is_fenced = _one_that_hangs(drill, workers)
    _submit_more(drill)
    if mode == TRANSACTION:
        _pause(drill, pooler, is_fenced)
    else:  # PAUSE would wait for the workers' sessions to end
        _freeze(drill, pooler, is_fenced)
    _wait_for_all(drill)
    _submit_more(drill)
    pooler.kill()
    drill.inject("pooler_kill", "pgbouncer")
    pooler.start()
    _wait_for_all(drill)
    _expect_no_session_locks(drill)
    drill.stop_workers(drill.workers)  # while the pooler still runs


def _submit_more(drill: DrillContext) -> None:
    """Enqueue jobs, and wait until one is running; others start later."""
    before = drill.count("SELECT count(*) FROM faultline.jobs WHERE attempts > 0")
    tasks: tuple[Any, ...] = (pay, pay_by_hand)
    for number in range(2 * drill.settings.jobs):
        seconds = 0.3 * drill.settings.lease_seconds * (number % 3)
        drill.submit(tasks[number % 2], number=number, parts=2, work_seconds=seconds)
    drill.wait_until(
        lambda: drill.count("SELECT count(*) FROM faultline.jobs WHERE attempts > 0") > before,
        "a claim",
    )


def _one_that_hangs(drill: DrillContext, workers: list[ObservedProcess]) -> Callable[[], bool]:
    """A condition: the worker has ended the endless attempt of a job that starts now.

    So there is always an attempt whose lease can expire during the fault. If the fault ended before
    that, the lease would be renewed, and the attempt would never end.
    """
    job = str(drill.submit(pay, number=0, plan={"1": "hang@start"}))

    def logged(event: str) -> bool:
        return any(each.events_named(event, job_id=job) for each in workers)

    drill.wait_until(lambda: logged("execution_started"), "its start")
    return lambda: logged("lease_lost")


def _end_server_connections(drill: DrillContext) -> None:
    """Terminate every connection that PgBouncer has to the server."""
    query = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    drill.inject("backend_kill", "pgbouncer", sessions=drill.count(query))


def _pause(drill: DrillContext, pooler: Pooler, is_fenced: Callable[[], bool]) -> None:
    """PAUSE for longer than a lease."""
    pooler.tell("PAUSE")
    drill.inject("pause", "pgbouncer", how="PAUSE")
    drill.wait_until(is_fenced, "self-fencing")
    pooler.tell("RESUME")


def _freeze(drill: DrillContext, pooler: Pooler, is_fenced: Callable[[], bool]) -> None:
    pooler.freeze()
    drill.inject("pause", "pgbouncer", how="SIGSTOP")
    drill.wait_until(is_fenced, "self-fencing")
    pooler.thaw()


def _wait_for_all(drill: DrillContext) -> None:
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")


def _expect_degradation(drill: DrillContext, worker: ObservedProcess) -> None:
    drill.wait_until(
        lambda: bool(worker.events_named("worker_started")),
        f"the start of {worker.name}",
        by=worker,
    )

    def losses() -> str:
        return " ".join(str(each.get("reason")) for each in worker.events_named("degraded"))

    drill.wait_until(lambda: "reconciler" in losses(), "its last event on it", by=worker)
    logged = losses()
    for loss in ("LISTEN", "lease", "reconciler"):
        drill.expect(loss in logged, f"{worker.name} did not log what it lost: {loss}")
    started = worker.events_named("worker_started")[0]
    drill.expect(
        started["recovery_after_crash_seconds"] == started["recovery_after_silence_seconds"],
        f"{worker.name} logged a recovery time that needs a session lock",
    )


def _expect_no_session_locks(drill: DrillContext) -> None:
    """Session locks would be held by a connection that belongs to another client."""
    query = (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = %s"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    drill.expect(
        drill.count(query, [LOCK_CLASS]) == 0, "a client of the pooler holds a session lock"
    )
