"""The database's clock jumps by an hour, and decides about leases."""

from __future__ import annotations

from faultline_drills.clock import missing_requirement
from faultline_drills.clock.movable import MovableClock
from faultline_drills.context import DrillContext
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.processes.stalled_worker import resume_until_done
from faultline_drills.proxy import Action, Match, proxy_to
from faultline_drills.proxy.matchers import is_fenced_commit
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay, pay_by_hand

_HOUR_SECONDS = 3600
_LONG_LEASE_SECONDS = "30"  # longer than the drill: only the clock ends it
_NO_CRASH = {"fsync": "off"}  # no crash here, and a restart is faster
_FREEZE = {"1": "stop@start"}
_RUNNING = "SELECT count(*) FROM faultline.jobs WHERE state = 'running'"
_ALL_REQUEUED = "SELECT FROM faultline.attempts_log HAVING count(*) >= %s"


@scenario(
    shows=("clock_jumps", "takeovers", "stale_rejections", "commits"),
    breaks_naive=True,
    server_settings=_NO_CRASH,
    missing_requirement=missing_requirement,
)
def database_clock_ahead(drill: DrillContext) -> None:
    """The database's clock jumps an hour ahead, so every lease expires at once.

    All running jobs are requeued while their worker is alive and has done its work, except for the
    commit. The work is wasted, but the worker's token is no longer the newest, so its commits must
    be refused.
    """
    clock = _movable_clock(drill)
    jobs = drill.settings.jobs
    proxy = drill.stack.enter_context(proxy_to(drill.url))
    interceptions = [proxy.on(Match(where=is_fenced_commit), Action.HOLD) for _ in range(jobs)]
    for number in range(jobs):
        drill.submit(pay_by_hand, number=number)
    lease = ("--lease-seconds", _LONG_LEASE_SECONDS)
    options = ("--no-self-fencing", "--concurrency", str(jobs), *lease)
    unaware = drill.worker(*options, name="unaware", url=proxy.url)
    drill.wait_until(
        lambda: all(each.is_done for each in interceptions),
        "a held commit of every job",
    )
    clock.move(_HOUR_SECONDS)
    drill.inject("clock_jump", "postgres", seconds=_HOUR_SECONDS)
    for number in range(drill.settings.workers):
        drill.worker(*lease, name=f"steady-{number + 1}")
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")
    proxy.clear_faults()
    drill.wait_until(
        lambda: len(unaware.events_named("worker_exit")) >= jobs, "the refusal of the late commits"
    )


@scenario(
    shows=("clock_jumps", "stops", "takeovers", "stale_rejections", "commits"),
    breaks_naive=True,
    server_settings=_NO_CRASH,
    missing_requirement=missing_requirement,
)
def database_clock_behind(drill: DrillContext) -> None:
    """The clock is set back by an hour, so a stopped worker's leases seem valid.

    A reconciler has a monotonic clock: a lease that was not renewed for its whole length has
    expired, whatever the database's clock says. Its jobs must be requeued and due at once. When the
    stopped worker resumes, it must be refused.
    """
    clock = _movable_clock(drill)
    for number in range(drill.settings.jobs):
        drill.submit(pay, number=number, plan=_FREEZE)
    late = drill.worker(*_late_options(drill), "--no-reconciler", name="late")
    _set_back(drill, clock, late)


@scenario(
    shows=("clock_jumps", "stops", "acting_leaders", "takeovers", "stale_rejections", "commits"),
    breaks_naive=True,
    server_settings=_NO_CRASH,
    missing_requirement=missing_requirement,
)
def database_clock_behind_frozen_leader(drill: DrillContext) -> None:
    """The clock is set back by an hour while the leading reconciler is stopped.

    PostgreSQL would end the silent leader's session by a timer that follows the wall clock, so for
    an hour no other reconciler gets the lock. The followers must notice by their monotonic clocks
    that the leader is silent, and one of them must act as leader until it is back.
    """
    clock = _movable_clock(drill)
    late = drill.worker(*_late_options(drill), name="late")
    drill.wait_until(
        lambda: bool(late.events_named("reconciler_leading")), "its leadership", by=late
    )
    with drill.conn.transaction():  # else the worker would stop with the first job alone
        for number in range(drill.settings.jobs):
            drill.submit(pay, number=number, plan=_FREEZE)
    _set_back(drill, clock, late)
    drill.measured["acting_leaders"] = sum(
        len(worker.events_named("reconciler_leading", is_acting_leader=True))
        for worker in drill.workers
    )


def _late_options(drill: DrillContext) -> tuple[str, ...]:
    return "--no-self-fencing", "--concurrency", str(drill.settings.jobs)


def _set_back(drill: DrillContext, clock: MovableClock, late: ObservedProcess) -> None:
    """Set the clock back while the worker is stopped; resume it after the takeover."""
    jobs = drill.settings.jobs
    # A job that is still queued then would not be due for an hour.
    drill.wait_until(lambda: drill.count(_RUNNING) == jobs, "a claim of all jobs", by=late)
    drill.wait_until(lambda: late.is_stopped, "the stall", by=late)
    drill.inject("stop", late.name)
    clock.move(-_HOUR_SECONDS)
    drill.inject("clock_jump", "postgres", seconds=-_HOUR_SECONDS)
    for number in range(drill.settings.workers):
        drill.worker(name=f"steady-{number + 1}")
    drill.wait_for_row(_ALL_REQUEUED, [jobs], "the end of the leases by a monotonic clock")
    drill.wait_until(lambda: drill.unfinished() == 0, "the takeover")
    resume_until_done(drill, late, attempts=jobs)


def _movable_clock(drill: DrillContext) -> MovableClock:
    """Restart the server with a movable clock."""
    clock = MovableClock(drill.server.data_dir.parent)  # readable for the server's account
    drill.server.shut_down(mode="fast")
    drill.server.environment.update(clock.environment)
    drill.server.start()
    drill.query("SELECT 1")  # opens a new session
    return clock
