"""The database's clock goes back by a day while jobs are queued.

A job for now is due at the time of its enqueue, and a retry some seconds after the failed attempt;
with the clock set back both are due in a day. The leading reconciler must notice the jump and make
these jobs due again. A job that was scheduled for a later time keeps its time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline_drills.clock import missing_requirement as lacks_a_clock
from faultline_drills.clock.movable import MovableClock
from faultline_drills.cluster import MEMBER_SETTINGS, Cluster
from faultline_drills.cluster import missing_requirement as lacks_programs
from faultline_drills.context import DrillContext
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay

_DAY_SECONDS = 86_400
_NO_CRASH = {"fsync": "off"}
_WAITING = "SELECT count(*) FROM faultline.jobs WHERE state IN ('queued', 'running') AND id <> %s"


def _missing_requirement() -> str | None:
    return lacks_a_clock() or lacks_programs()


@scenario(
    shows=("clock_jumps", "reschedules", "commits"),
    server_settings=_NO_CRASH,
    missing_requirement=lacks_a_clock,
)
def clock_set_back_under_a_leader(drill: DrillContext) -> None:
    """The database's clock goes back by a day while a worker's reconciler leads.

    The reconciler notices it by its own monotonic clock. First, as the control, its process is
    stopped: another worker then runs newly enqueued jobs, and none of the older ones, although they
    were due at once.
    """
    clock = MovableClock(drill.server.data_dir.parent)
    _restart(drill, clock)
    leader = drill.worker("--queues", "elsewhere", name="leader")
    drill.wait_until(
        lambda: bool(leader.events_named("reconciler_leading")), "its leadership", by=leader
    )
    scheduled = _enqueue(drill)
    leader.stop()
    drill.wait_until(lambda: leader.is_stopped, "the stop of the leader")
    clock.move(-_DAY_SECONDS)
    drill.inject("clock_jump", "postgres", seconds=-_DAY_SECONDS)
    control = drill.worker("--no-reconciler", name="without a reconciler")
    drill.wait_for_state(drill.submit(pay, number=drill.settings.jobs), "succeeded")
    waiting = drill.count(_WAITING, [scheduled])
    drill.expect(
        waiting == drill.settings.jobs,
        f"without a reconciler only {waiting} of {drill.settings.jobs} jobs stayed queued",
    )
    control.end()
    leader.resume()
    _expect_work(drill, scheduled)


@scenario(
    shows=("power_cuts", "promotions", "reschedules", "commits"),
    server_settings=MEMBER_SETTINGS,
    missing_requirement=_missing_requirement,
)
def failover_to_a_clock_behind(drill: DrillContext) -> None:
    """A failover promotes a standby whose clock is a day behind.

    The reconciler that starts to lead notices timestamps in the future, and makes the jobs due
    again.
    """
    cluster = Cluster(drill)
    (standby,) = cluster.standbys
    behind = MovableClock(standby.server.data_dir.parent)
    behind.move(-_DAY_SECONDS)
    standby.server.shut_down(mode="fast")
    standby.server.environment.update(behind.environment)
    standby.server.start()
    scheduled = _enqueue(drill)
    cluster.wait_until_shipped(standby)
    cluster.lose_primary()
    cluster.promote(standby)
    _expect_work(drill, scheduled)


def _restart(drill: DrillContext, clock: MovableClock) -> None:
    drill.server.shut_down(mode="fast")
    drill.server.environment.update(clock.environment)
    drill.server.start()
    drill.query("SELECT 1")  # opens a new session


def _enqueue(drill: DrillContext) -> UUID:
    """Enqueue jobs without a worker: one awaits its retry, and one is for tomorrow."""
    drill.submit(pay, number=0)
    take = protocol.claim("clerk", ["default"], batch_size=1, lease_seconds=600)
    for claim in run(drill.conn, take):
        run(drill.conn, protocol.fail(claim, error="by plan", retry_seconds=5))
    for number in range(1, drill.settings.jobs):
        drill.submit(pay, number=number)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    return pay.options(run_at=tomorrow, conn=drill.conn).enqueue(number=-1).job_id


def _expect_work(drill: DrillContext, scheduled: UUID) -> None:
    worker = drill.worker(name="worker")
    drill.wait_until(
        lambda: drill.query(_WAITING, [scheduled]) == [(0,)], "the end of all due jobs"
    )
    state = drill.query("SELECT state FROM faultline.jobs WHERE id = %s", [scheduled])
    drill.expect(state == [("queued",)], "the job for tomorrow is no longer queued")
    drill.query("SELECT faultline.cancel(%s)", [scheduled])
    drill.expect(worker.is_alive, "the worker ended")
    drill.measured["reschedules"] = sum(
        line.get("jobs", 0)
        for each in drill.workers
        for line in each.events_named("jobs_rescheduled")
    )
