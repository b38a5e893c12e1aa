"""The database goes down at the moment of a firing, at each of its stages.

Once a firing is on its way to the server, once it waits in the middle of its transaction, with the row
of its schedule locked, and once it was executed and its answer is lost. The server is restarted, stopped
without a checkpoint, and killed. Each planned time must have exactly one job.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from typing import LiteralString

from faultline.postgres.sessions import connect, run
from faultline.statements import protocol, schedules
from faultline_drills.context import DrillContext
from faultline_drills.proxy import Action, Match, Proxy, proxy_to
from faultline_drills.scenario import scenario
from faultline_drills.schedules import SchedulerFleet, put_schedule, wait_for_firings
from faultline_drills.schedules.expectations import expect_agreement, expect_once, expect_series

SCHEDULERS = 8
SCHEDULES = 2
TIMES = 2  # firings of each schedule after each restart
_ALWAYS = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)
_FIRING = Match(text="faultline.fire_schedule")
# A time that is about to be planned, as the key of its job.
_LATER_KEY: LiteralString = """
    SELECT 'schedule:schedule-0:' || to_char(
        (date_trunc('second', clock_timestamp()) + interval '2 seconds') AT TIME ZONE 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
"""
_WAITS_INSIDE: LiteralString = """
    SELECT count(*) FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND strpos(query, 'fire_schedule') > 0 AND pid <> pg_backend_pid()
"""


@scenario(shows=("restarts", "held_firings", "lost_answers", "commits"), own_server=True)
def schedule_restart(drill: DrillContext) -> None:
    for number in range(SCHEDULES):
        put_schedule(drill, number, every=1, missed="all")
    proxy = drill.stack.enter_context(proxy_to(drill.url))
    fleet = SchedulerFleet(drill)
    fleet.start(2, url=proxy.url)
    fleet.start(SCHEDULERS - 2)
    wait_for_firings(drill, 1)
    _restart_on_the_way(drill, proxy)
    _restart_inside(drill)
    _restart_after(drill, proxy)
    for number in range(SCHEDULES):
        run(drill.conn, schedules.pause(f"schedule-{number}"))
    fleet.expect_alive()
    fleet.end()
    expect_once(drill)
    expect_agreement(drill)
    for number in range(SCHEDULES):
        expect_series(drill, number, every=1, after=_ALWAYS[0], until=_ALWAYS[1])


def _restart_on_the_way(drill: DrillContext, proxy: Proxy) -> None:
    held = proxy.on(_FIRING, Action.HOLD)
    drill.wait_until(lambda: held.is_done, "a firing on its way")
    drill.inject("held_firing", "proxy", where="network")
    _restart(drill, "fast", lambda: drill.server.shut_down(mode="fast"))
    proxy.remove(held)
    wait_for_firings(drill, TIMES)


def _restart_inside(drill: DrillContext) -> None:
    """Restart while a firing waits for a transaction that has the key of its job."""
    with closing(connect(drill.url, application_name="faultline drill blocker")) as blocker:
        blocker.execute("BEGIN")
        ((key,),) = blocker.execute(_LATER_KEY).fetchall()
        statement = protocol.enqueue(
            "drill.note", {}, queue="none", priority=5, max_attempts=1, idempotency_key=key
        )
        run(blocker, statement)  # rolled back by the restart
        drill.wait_until(lambda: drill.count(_WAITS_INSIDE) > 0, "a firing that waits")
        drill.inject("held_firing", "postgres", where="transaction")
        _restart(drill, "immediate", lambda: drill.server.shut_down(mode="immediate"))
    wait_for_firings(drill, TIMES)


def _restart_after(drill: DrillContext, proxy: Proxy) -> None:
    lost = proxy.on(_FIRING, Action.DROP_REPLY)
    drill.wait_until(lambda: lost.is_done, "a firing whose reply is lost")
    drill.inject("lost_answer", "proxy")
    _restart(drill, "SIGKILL", drill.server.kill)
    wait_for_firings(drill, TIMES)


def _restart(drill: DrillContext, how: str, shut_down: Callable[[], None]) -> None:
    shut_down()
    drill.inject("restart", "postgres", how=how)
    drill.server.start()
