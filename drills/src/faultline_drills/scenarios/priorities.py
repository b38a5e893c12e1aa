"""Jobs of the lowest priority start while jobs of the highest one wait.

One worker with one slot serves jobs of three priorities, and many of the highest. The rule: each priority
that has jobs is reached by one of ROTATE_EVERY claims for each of them, and claims that continue where
the last one ended follow the rule for themselves. Without it the jobs of the lowest priority start last.
"""

from __future__ import annotations

from typing import LiteralString

from faultline.workers.priority_rotation import ROTATE_EVERY
from faultline_drills.context import DrillContext
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import note

_HIGH, _OTHERS = 0, (4, 9)
_LANES = 1 + len(_OTHERS)
_BOUND = 2 * ROTATE_EVERY * _LANES
_JOBS = 2 * _BOUND  # of the highest priority
# The number of the first start of each priority, in the order of all starts.
_FIRST_STARTS: LiteralString = """
    SELECT s.priority, min(s.number) FROM (
        SELECT j.priority, row_number() OVER (ORDER BY t.order_number) AS number
        FROM drill.transitions AS t JOIN faultline.jobs AS j ON j.id = t.job_id
        WHERE t.after = 'running' AND t.before = 'queued') AS s
    GROUP BY s.priority ORDER BY s.priority
"""


@scenario(shows=("long_lanes", "commits"))
def priorities(drill: DrillContext) -> None:
    for number in range(_JOBS):
        drill.submit(note, priority=_HIGH, number=number)
    for priority in _OTHERS:
        drill.submit(note, priority=priority, number=priority)
    drill.inject("long_lane", f"priority-{_HIGH}", jobs=_JOBS)
    drill.started_worker("--concurrency", "1")
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")
    for priority, number in drill.query(_FIRST_STARTS):
        drill.expect(
            number <= _BOUND,
            f"the first job of priority {priority} was start number {number}, not one of {_BOUND}",
        )
