"""The clock of the database jumps by an hour while jobs run, and it alone decides about leases."""

from __future__ import annotations

from faultline_drills.clock import lacking
from faultline_drills.clock.movable import MovableClock
from faultline_drills.context import DrillContext
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.processes.stalled_worker import resume_until_done
from faultline_drills.proxy import Action, Match, proxy_to
from faultline_drills.proxy.matchers import is_fenced_commit
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay, pay_by_hand

_HOUR_SECONDS = 3600
_LONG_LEASE_SECONDS = "30"  # nothing but the clock ends it while the story lasts
_NO_CRASH = {"fsync": "off"}  # in these stories; starting anew is quicker
_FREEZE = {"1": "stop@start"}
_RUNNING = "SELECT count(*) FROM faultline.jobs WHERE state = 'running'"
_ALL_GIVEN_BACK = "SELECT FROM faultline.attempts_log HAVING count(*) >= %s"


@scenario(
    shows=("clock_jumps", "takeovers", "stale_rejections", "commits"),
    breaks_naive=True,
    server_settings=_NO_CRASH,
    lacking=lacking,
)
def database_clock_ahead(drill: DrillContext) -> None:
    """The database's clock jumps an hour ahead: every lease there is has run out, all at once.

    All of the running jobs are given to others while their worker is alive, well and unaware, with its
    work done but for the commit. That wastes work. It does not corrupt anything, because the token that
    this worker holds is no longer the newest, and it is refused.
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
        "all jobs half done",
    )
    clock.move(_HOUR_SECONDS)
    drill.inject("clock_jump", "postgres", seconds=_HOUR_SECONDS)
    for number in range(drill.settings.workers):
        drill.worker(*lease, name=f"steady-{number + 1}")
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")
    proxy.clear_faults()
    drill.wait_until(
        lambda: len(unaware.events_named("worker_exit")) >= jobs, "the refusal of the late"
    )


@scenario(
    shows=("clock_jumps", "stops", "takeovers", "stale_rejections", "commits"),
    breaks_naive=True,
    server_settings=_NO_CRASH,
    lacking=lacking,
)
def database_clock_behind(drill: DrillContext) -> None:
    """The database's clock is set back by an hour: the lease of a worker that froze seems good for that long.

    By that clock nobody may have its jobs before an hour has passed. But a reconciler has a steady clock
    of its own: a lease that was not renewed for longer than it lasts is over, whatever the database's
    clock says. What it gives back is due at once. The worker that froze comes back, and is refused.
    """
    clock = _movable_clock(drill)
    for number in range(drill.settings.jobs):
        drill.submit(pay, number=number, plan=_FREEZE)
    late = drill.worker(*_late_options(drill), "--no-reconciler", name="late")
    _set_back(drill, clock, late)


@scenario(
    shows=("clock_jumps", "stops", "stand_ins", "takeovers", "stale_rejections", "commits"),
    breaks_naive=True,
    server_settings=_NO_CRASH,
    lacking=lacking,
)
def database_clock_behind_frozen_leader(drill: DrillContext) -> None:
    """The database's clock is set back by an hour while the worker whose reconciler leads is frozen.

    PostgreSQL ends the session of a leader that says nothing, but by a timer that goes by the clock that
    was set back: for an hour nobody else can have the lock. Those that wait for it see by their own clocks
    that the leader shows no life, and one of them leads in its place until it does.
    """
    clock = _movable_clock(drill)
    late = drill.worker(*_late_options(drill), name="late")
    drill.wait_until(lambda: bool(late.events_named("reconciler_leading")), "its leading", by=late)
    with drill.conn.transaction():  # all at once, or it would freeze with the first of them
        for number in range(drill.settings.jobs):
            drill.submit(pay, number=number, plan=_FREEZE)
    _set_back(drill, clock, late)
    drill.measured["stand_ins"] = sum(
        len(worker.events_named("reconciler_leading", stands_in=True)) for worker in drill.workers
    )


def _late_options(drill: DrillContext) -> tuple[str, ...]:
    return "--no-self-fencing", "--concurrency", str(drill.settings.jobs)


def _set_back(drill: DrillContext, clock: MovableClock, late: ObservedProcess) -> None:
    """Set the clock back when the worker has frozen, see all its jobs given to others, and wake it."""
    jobs = drill.settings.jobs
    # What still waited would not be due for an hour.
    drill.wait_until(lambda: drill.count(_RUNNING) == jobs, "a claim of all jobs", by=late)
    drill.wait_until(lambda: late.is_stopped, "the stall", by=late)
    drill.inject("stop", late.name)
    clock.move(-_HOUR_SECONDS)
    drill.inject("clock_jump", "postgres", seconds=-_HOUR_SECONDS)
    for number in range(drill.settings.workers):
        drill.worker(name=f"steady-{number + 1}")
    drill.wait_for_row(_ALL_GIVEN_BACK, [jobs], "the end of the leases by a steady clock")
    drill.wait_until(lambda: drill.unfinished() == 0, "the takeover")
    resume_until_done(drill, late, attempts=jobs)


def _movable_clock(drill: DrillContext) -> MovableClock:
    """Start the server anew, with a clock that can be moved."""
    clock = MovableClock(drill.server.data_dir.parent)  # where the server's account may look
    drill.server.shut_down(mode="fast")
    drill.server.environment.update(clock.environment)
    drill.server.start()
    drill.query("SELECT 1")  # a new session of the drill's own, in place of the one that was ended
    return clock
