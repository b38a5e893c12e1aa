"""What must be true of firings: one job per planned time, in all tables.

The payload of a schedule's job has the schedule's number, so that its jobs are found also for a subject
that records no firings.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import LiteralString

from faultline.postgres.sessions import run
from faultline.statements import invariants
from faultline_drills.context import DrillContext

_SHOWN = 5
_AGREEMENT = (
    "a_schedule_has_recorded_what_it_decided",
    "a_firing_has_its_job",
    "a_scheduled_job_has_its_firing",
)
_FEWEST: LiteralString = """
    SELECT coalesce(min(number), 0) FROM (
        SELECT count(DISTINCT j.scheduled_for) FILTER (WHERE j.scheduled_for > %s) AS number
        FROM faultline.schedules AS s
        LEFT JOIN faultline.jobs AS j ON (j.payload ->> 'number') = s.payload ->> 'number'
        GROUP BY s.name) AS n
"""
_TWICE: LiteralString = """
    SELECT payload ->> 'number', scheduled_for, count(*) FROM faultline.jobs
    WHERE scheduled_for IS NOT NULL GROUP BY 1, 2 HAVING count(*) > 1 ORDER BY 2 LIMIT %s
"""
_TIMES: LiteralString = """
    SELECT DISTINCT scheduled_for FROM faultline.jobs
    WHERE scheduled_for > %s AND scheduled_for <= %s AND payload ->> 'number' = %s::text
    ORDER BY scheduled_for
"""


def wait_for_firings(drill: DrillContext, times: int) -> None:
    """Wait until every schedule has fired so often; they must agree all the time."""
    ((now,),) = drill.query("SELECT clock_timestamp()")

    def fired() -> bool:
        expect_agreement(drill)
        return drill.count(_FEWEST, [now]) >= times

    drill.wait_until(fired, f"{times} firings of each schedule")


def expect_agreement(drill: DrillContext) -> None:
    """Expect that schedules, firings and jobs agree, as `faultline verify` checks."""
    for invariant in invariants.INVARIANTS:
        if invariant.name in _AGREEMENT:
            for found in run(drill.conn, invariants.check(invariant)):
                what = f"not so at every moment: {invariant.claim} ({found.evidence})"
                if what not in drill.broken_expectations:
                    drill.expect(False, what)


def expect_once(drill: DrillContext) -> None:
    """Expect that no planned time has two jobs."""
    for number, planned_at, jobs in drill.query(_TWICE, [_SHOWN]):
        drill.expect(False, f"schedule {number} fired {jobs} times for {planned_at}")


def fired_times(
    drill: DrillContext, number: int, *, after: datetime, until: datetime
) -> list[datetime]:
    return [time for (time,) in drill.query(_TIMES, [after, until, number])]


def expect_series(
    drill: DrillContext, number: int, *, every: int, after: datetime, until: datetime
) -> None:
    """Expect that an interval without an anchor left out no time between two firings."""
    fired = fired_times(drill, number, after=after, until=until)
    if not fired:
        return
    count = int((fired[-1] - fired[0]).total_seconds()) // every + 1
    planned = [fired[0] + timedelta(seconds=every * step) for step in range(count)]
    drill.expect(
        fired[0].timestamp() % every == 0,
        f"schedule {number} fired for {fired[0]}, which is no multiple of {every} s",
    )
    expect_firings(drill, number, planned, after=after, until=until)


def expect_firings(
    drill: DrillContext,
    number: int,
    planned: Sequence[datetime],
    *,
    after: datetime,
    until: datetime,
) -> None:
    """Expect jobs for exactly these times, of those after `after` up to `until`."""
    fired = fired_times(drill, number, after=after, until=until)
    for time in sorted(set(planned) - set(fired))[:_SHOWN]:
        drill.expect(False, f"schedule {number} did not fire for {time}")
    for time in sorted(set(fired) - set(planned))[:_SHOWN]:
        drill.expect(False, f"schedule {number} fired for {time}, which is not planned")
