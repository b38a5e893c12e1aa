"""Eight schedulers without a leader fire the same schedules under faults.

They are killed, stopped, and cut off by a network that delivers what they sent only later. Replies to
firings are lost, and the times of a schedule change while a firing of it is on its way. Each schedule
is due every second and fires every missed time, so that all schedulers want the same firing at the same
moment. Every planned time must have exactly one job, and schedules, firings and jobs must agree at
every moment.
"""

from __future__ import annotations

from datetime import UTC, datetime

from faultline.postgres.sessions import run
from faultline.statements import schedules
from faultline_drills.context import DrillContext
from faultline_drills.proxy import Action, Match, Proxy, proxy_to
from faultline_drills.scenario import scenario
from faultline_drills.schedules import SchedulerFleet, put_schedule, wait_for_firings
from faultline_drills.schedules.expectations import expect_agreement, expect_once, expect_series

SCHEDULES = 3
TIMES = 3  # that each schedule fires after the last fault
_LATER_EVERY = 2  # the interval of schedule-0 after its change
_ALWAYS = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)
_FIRING = Match(text="faultline.fire_schedule")


@scenario(
    shows=("kills", "pauses", "partitions", "lost_answers", "changes", "commits"),
    breaks_naive=True,
)
def schedule_firing(drill: DrillContext) -> None:
    for number in range(SCHEDULES):
        put_schedule(drill, number, every=1, missed="all")
    losing, cut_off = (drill.stack.enter_context(proxy_to(drill.url)) for _ in range(2))
    fleet = SchedulerFleet(drill)
    fleet.start(2, url=losing.url)
    fleet.start(2, url=cut_off.url)
    fleet.start(4)
    wait_for_firings(drill, 1)
    _lose_a_reply(drill, losing)
    fleet.kill(5)
    fleet.stop(6)
    cut_off.blackhole()
    drill.inject("partition", "scheduler-3 and scheduler-4")
    wait_for_firings(drill, 2)
    changed_at = _change_times(drill, losing)
    _lose_a_reply(drill, losing)
    fleet.kill(7)
    fleet.resume(6)
    cut_off.clear_faults()  # what they sent before arrives now
    wait_for_firings(drill, TIMES)
    for number in range(SCHEDULES):
        run(drill.conn, schedules.pause(f"schedule-{number}"))
    fleet.expect_alive()
    fleet.end()
    _judge(drill, changed_at)


def _lose_a_reply(drill: DrillContext, proxy: Proxy) -> None:
    """Let PostgreSQL execute one firing, and lose its answer."""
    lost = proxy.on(_FIRING, Action.DROP_REPLY)
    drill.wait_until(lambda: lost.is_done, "a firing whose reply is lost")
    drill.inject("lost_answer", "proxy")


def _change_times(drill: DrillContext, proxy: Proxy) -> datetime:
    """Change when schedule-0 fires, while a scheduler's firing is on its way."""
    held = proxy.on(_FIRING, Action.HOLD)
    drill.wait_until(lambda: held.is_done, "a firing on its way")
    put_schedule(drill, 0, every=_LATER_EVERY, missed="all", priority=1)
    drill.inject("change", "schedule-0")
    changes = "SELECT changed_at FROM faultline.schedules WHERE name = 'schedule-0'"
    changed_at: datetime = drill.query(changes)[0][0]
    proxy.release(held)
    return changed_at


def _judge(drill: DrillContext, changed_at: datetime) -> None:
    expect_once(drill)
    since, until = _ALWAYS
    expect_series(drill, 0, every=1, after=since, until=changed_at)
    expect_series(drill, 0, every=_LATER_EVERY, after=changed_at, until=until)
    for number in range(1, SCHEDULES):
        expect_series(drill, number, every=1, after=since, until=until)
    expect_agreement(drill)
