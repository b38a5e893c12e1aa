"""Eight schedulers without a leader fire the same schedules under faults.

They are killed, frozen and cut off. Each schedule is due every second and fires every missed time, so
that all schedulers want the same firing at the same moment. Replies to firings are lost, and one
schedule is changed meanwhile. Every planned time must have exactly one job, and schedules, firings and
jobs must agree at every moment.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import LiteralString

from faultline.postgres.sessions import run
from faultline.schedules import make_schedule
from faultline.statements import invariants, schedules
from faultline_drills.context import DrillContext
from faultline_drills.proxy import Action, Match, Proxy, proxy_to
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay

SCHEDULERS = 8
SCHEDULES = 3
TIMES = 6  # that each schedule fires under faults
_AGREEMENT = (
    "a_schedule_has_recorded_what_it_decided",
    "a_firing_has_its_job",
    "a_scheduled_job_has_its_firing",
)
_FIRED: LiteralString = """
    SELECT coalesce(min(number), 0) FROM (
        SELECT count(DISTINCT j.scheduled_for) FILTER (WHERE j.scheduled_for > %s) AS number
        FROM faultline.schedules AS s
        LEFT JOIN faultline.jobs AS j ON (j.payload ->> 'number') = s.payload ->> 'number'
        GROUP BY s.name) AS n
"""
_TWICE: LiteralString = """
    SELECT payload ->> 'number', scheduled_for, count(*) FROM faultline.jobs
    WHERE scheduled_for IS NOT NULL GROUP BY 1, 2 HAVING count(*) > 1 ORDER BY 2 LIMIT 5
"""
_MISSING: LiteralString = """
    SELECT n.number, t.planned_at FROM (
        SELECT payload ->> 'number' AS number, min(scheduled_for) AS oldest, max(scheduled_for) AS newest
        FROM faultline.jobs WHERE scheduled_for IS NOT NULL GROUP BY 1) AS n
    CROSS JOIN LATERAL generate_series(n.oldest, n.newest, interval '1 second') AS t (planned_at)
    WHERE NOT EXISTS (SELECT FROM faultline.jobs AS j
        WHERE j.payload ->> 'number' = n.number AND j.scheduled_for = t.planned_at) LIMIT 5
"""


@scenario(
    shows=("kills", "pauses", "lost_answers", "changes", "commits"),
    breaks_naive=True,
)
def schedule_firing(drill: DrillContext) -> None:
    for number in range(SCHEDULES):
        _put(drill, number)
    proxy = drill.stack.enter_context(proxy_to(drill.url))
    fleet = [_start(drill, proxy.url if number < 2 else drill.url) for number in range(SCHEDULERS)]
    _wait_for_firings(drill, 1)
    _lose_a_reply(drill, proxy)
    fleet[2].kill()
    drill.inject("kill", "scheduler-3")
    fleet.append(_start(drill, drill.url))
    fleet[3].send_signal(signal.SIGSTOP)
    drill.inject("pause", "scheduler-4")
    _wait_for_firings(drill, 2)
    _put(drill, 0, priority=1)
    drill.inject("change", "schedule-0")
    _lose_a_reply(drill, proxy)
    fleet[4].kill()
    drill.inject("kill", "scheduler-5")
    fleet[3].send_signal(signal.SIGCONT)
    _wait_for_firings(drill, TIMES)
    for number in range(SCHEDULES):
        run(drill.conn, schedules.pause(f"schedule-{number}"))
    for process in fleet:
        process.kill()
        process.wait()
    _judge(drill)


def _put(drill: DrillContext, number: int, *, priority: int = 5) -> None:
    job = pay.options(priority=priority).job(number=number)
    schedule = make_schedule(job, None, every=1, name=f"schedule-{number}", missed="all")
    run(drill.conn, schedules.add(schedule.definition, replace=True))


def _start(drill: DrillContext, url: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-m", "faultline_drills.clients.bare_scheduler", url]
    )
    drill.stack.callback(process.wait)
    drill.stack.callback(process.kill)
    return process


def _lose_a_reply(drill: DrillContext, proxy: Proxy) -> None:
    """Let PostgreSQL execute one firing, and lose its answer."""
    lost = proxy.on(Match(text="faultline.fire_schedule"), Action.DROP_REPLY)
    drill.wait_until(lambda: lost.is_done, "a firing whose reply is lost")
    drill.inject("lost_answer", "proxy")


def _wait_for_firings(drill: DrillContext, times: int) -> None:
    """Wait until every schedule has fired so often; they must agree all the time."""
    ((now,),) = drill.query("SELECT clock_timestamp()")

    def fired() -> bool:
        _expect_agreement(drill)
        return drill.count(_FIRED, [now]) >= times

    drill.wait_until(fired, f"{times} firings of each schedule")


def _expect_agreement(drill: DrillContext) -> None:
    for invariant in invariants.INVARIANTS:
        if invariant.name in _AGREEMENT:
            for found in run(drill.conn, invariants.check(invariant)):
                what = f"not so at every moment: {invariant.claim} ({found.evidence})"
                if what not in drill.broken_expectations:
                    drill.expect(False, what)


def _judge(drill: DrillContext) -> None:
    for number, planned_at, jobs in drill.query(_TWICE):
        drill.expect(False, f"schedule-{number} fired {jobs} times for {planned_at}")
    for number, planned_at in drill.query(_MISSING):
        drill.expect(False, f"schedule-{number} did not fire for {planned_at}")
    _expect_agreement(drill)
