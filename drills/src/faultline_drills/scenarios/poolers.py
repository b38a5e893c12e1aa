"""Workers reach the database through PgBouncer, which loses, pauses and shares what they believe to own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from faultline.statements.workers import LOCK_CLASS
from faultline_drills.context import DrillContext
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.processes.stalled_worker import resume_until_done, stalled_worker
from faultline_drills.scenario import scenario
from faultline_drills.servers.pooler import SESSION, TRANSACTION, Pooler, lacking, pooler_to
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
# More clients than this are at work in either story: in transaction mode they share these.
_POOL = {TRANSACTION: "6", SESSION: "60"}


@scenario(shows=SHOWS, breaks_naive=True, lacking=lacking)
def transaction_pooler(drill: DrillContext) -> None:
    """Workers share a few connections of a PgBouncer in transaction mode, and trouble comes from there.

    A session is somebody else's after each COMMIT: there is no LISTEN, no lock that would show that a
    worker is alive, and nothing set on a session is safe there. The workers say so, poll, and wait for
    leases to run out. One stops in the middle of its jobs and comes back late; then the server ends the
    shared connections, the pooler is paused for longer than a lease, and killed with everything in flight.
    """
    _play(drill, TRANSACTION)


@scenario(shows=SHOWS, lacking=lacking)  # the control has been found out by the same story, above
def session_pooler(drill: DrillContext) -> None:
    """Workers go through a PgBouncer in session mode, which they cannot tell from one in transaction mode.

    Each of them has a connection to itself there, and they take no more for granted than if they had not.
    The trouble is the same.
    """
    _play(drill, SESSION)


def _play(drill: DrillContext, mode: str) -> None:
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
    else:  # PAUSE would wait for sessions to end, and those of workers do not
        _freeze(drill, pooler, is_fenced)
    _wait_for_all(drill)
    _submit_more(drill)
    pooler.kill()
    drill.inject("pooler_kill", "pgbouncer")
    pooler.start()
    _wait_for_all(drill)
    _expect_no_session_locks(drill)
    drill.stop_workers(drill.workers)  # while there is a pooler to leave by


def _submit_more(drill: DrillContext) -> None:
    """Some that are under way when the blow comes, and some that have not begun."""
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
    """A job whose first attempt has no end: whether its worker has ended it, as it does by its own clock.

    However late the blow comes, there is an attempt whose lease can run out. And if the blow were over before
    it has, that lease would be renewed, and the attempt go on for ever.
    """
    job = str(drill.submit(pay, number=0, plan={"1": "hang@start"}))

    def heard(event: str) -> bool:
        return any(each.events_named(event, job_id=job) for each in workers)

    drill.wait_until(lambda: heard("execution_started"), "its start")
    return lambda: heard("lease_lost")


def _end_server_connections(drill: DrillContext) -> None:
    """All that PgBouncer has, whatever is going on in them."""
    query = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    drill.inject("backend_kill", "pgbouncer", sessions=drill.count(query))


def _pause(drill: DrillContext, pooler: Pooler, is_fenced: Callable[[], bool]) -> None:
    """For longer than a lease."""
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

    drill.wait_until(lambda: "every reconciler acts" in losses(), "its last word on it", by=worker)
    said = losses()
    for loss in ("LISTEN", "leases run out", "every reconciler acts"):
        drill.expect(loss in said, f"{worker.name} did not say what it lost: {loss}")
    started = worker.events_named("worker_started")[0]
    drill.expect(
        started["recovery_after_crash_seconds"] == started["recovery_after_silence_seconds"],
        f"{worker.name} named a time in which only a lock could show that it is dead",
    )


def _expect_no_session_locks(drill: DrillContext) -> None:
    """They would be on a connection that is somebody else's by now."""
    query = (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = %s"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    drill.expect(
        drill.count(query, [LOCK_CLASS]) == 0, "a session lock was taken by a pooler's client"
    )
