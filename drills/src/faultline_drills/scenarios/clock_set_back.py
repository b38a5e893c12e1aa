"""The database's clock goes back by a day while jobs wait, on one server and by a failover.

A job that is to run at once is due at the time of its enqueue, and a retry some seconds after the attempt.
When the clock goes back by a day, both lie a day ahead. The leading reconciler notices it: while it leads,
by its own steady clock; when it begins to lead, by the newest times on record, which are yet to come. It
makes these jobs due again. A job that was asked for at a later time keeps that time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline_drills.arena import Arena
from faultline_drills.clock import lacking as lacks_a_clock
from faultline_drills.clock.movable import MovableClock
from faultline_drills.cluster import MEMBER_SETTINGS, Cluster
from faultline_drills.cluster import lacking as lacks_programs
from faultline_drills.scenario import scenario
from faultline_drills.workload import pay

_DAY_SECONDS = 86_400
_NO_CRASH = {"fsync": "off"}
_WAITING = "SELECT count(*) FROM faultline.jobs WHERE state IN ('queued', 'running') AND id <> %s"


def _lacking() -> str | None:
    return lacks_a_clock() or lacks_programs()


@scenario(
    shows=("clock_jumps", "reschedules", "commits"),
    server_settings=_NO_CRASH,
    lacking=lacks_a_clock,
)
def clock_set_back_under_a_leader(arena: Arena) -> None:
    """A worker leads when the clock of the one server goes back by a day.

    First, as the control, it stands still. Another worker runs what is enqueued by the new clock, and none
    of the jobs from before, although they were to run at once.
    """
    clock = MovableClock(arena.server.data_dir.parent)
    _restart(arena, clock)
    leader = arena.worker("--queues", "elsewhere", name="leader")
    arena.wait_until(lambda: bool(leader.heard("reconciler_leading")), "its leading", by=leader)
    scheduled = _enqueue(arena)
    leader.stop()
    arena.wait_until(lambda: leader.is_stopped, "the stop of the leader")
    clock.move(-_DAY_SECONDS)
    arena.inject("clock_jump", "postgres", seconds=-_DAY_SECONDS)
    control = arena.worker("--no-reconciler", name="without a reconciler")
    arena.wait_for_state(arena.submit(pay, number=arena.settings.jobs), "succeeded")
    waiting = arena.count(_WAITING, [scheduled])
    arena.expect(
        waiting == arena.settings.jobs,
        f"without a reconciler {waiting} of {arena.settings.jobs} jobs wait, and not all of them",
    )
    control.end()
    leader.resume()
    _expect_work(arena, scheduled)


@scenario(
    shows=("power_cuts", "promotions", "reschedules", "commits"),
    server_settings=MEMBER_SETTINGS,
    lacking=_lacking,
)
def failover_to_a_clock_behind(arena: Arena) -> None:
    """The primary is lost, and the standby that takes its place has a clock that is a day behind."""
    cluster = Cluster(arena)
    (standby,) = cluster.standbys
    behind = MovableClock(standby.server.data_dir.parent)
    behind.move(-_DAY_SECONDS)
    standby.server.shut_down(mode="fast")
    standby.server.environment.update(behind.environment)
    standby.server.start()
    scheduled = _enqueue(arena)
    cluster.wait_until_shipped(standby)
    cluster.lose_primary()
    cluster.promote(standby)
    _expect_work(arena, scheduled)


def _restart(arena: Arena, clock: MovableClock) -> None:
    arena.server.shut_down(mode="fast")
    arena.server.environment.update(clock.environment)
    arena.server.start()
    arena.query("SELECT 1")  # a new session of the arena's own


def _enqueue(arena: Arena) -> UUID:
    """Jobs that no worker listens to yet, one of them with a retry ahead, and one for tomorrow."""
    arena.submit(pay, number=0)
    take = protocol.claim("clerk", ["default"], batch_size=1, lease_seconds=600)
    for claim in run(arena.conn, take):
        run(arena.conn, protocol.fail(claim, error="by plan", retry_seconds=5))
    for number in range(1, arena.settings.jobs):
        arena.submit(pay, number=number)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    return pay.enqueue(number=-1, run_at=tomorrow, conn=arena.conn).job_id


def _expect_work(arena: Arena, scheduled: UUID) -> None:
    worker = arena.worker(name="worker")
    arena.wait_until(
        lambda: arena.query(_WAITING, [scheduled]) == [(0,)], "the end of all jobs that were due"
    )
    state = arena.query("SELECT state FROM faultline.jobs WHERE id = %s", [scheduled])
    arena.expect(state == [("queued",)], "the job for tomorrow still waits")
    arena.query("SELECT faultline.cancel(%s)", [scheduled])
    arena.expect(worker.is_alive, "the worker works")
    arena.measured["reschedules"] = sum(
        line.get("jobs", 0) for each in arena.workers for line in each.heard("jobs_rescheduled")
    )
