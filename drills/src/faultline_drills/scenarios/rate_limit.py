"""Jobs never start faster than the bucket of their rate allows.

Workers are killed meanwhile. Over the whole history, no window may hold more starts than the burst
and the rate allow, by the database's clock.
"""

from __future__ import annotations

import signal

from faultline.postgres.sessions import run
from faultline.statements import limits
from faultline_drills.context import DrillContext
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay

JOBS_PER_SECOND = 40
BURST = 3


@scenario(shows=("kills", "commits"))
def rate_limit(drill: DrillContext) -> None:
    statement = limits.set_limit(
        "task:drill.pay", rate_jobs=JOBS_PER_SECOND, rate_seconds=1.0, burst=BURST
    )
    run(drill.conn, statement)
    jobs = drill.settings.jobs * 5
    for number in range(jobs):
        drill.submit(pay, key=f"pay-{number}", number=number)
    workers = [drill.started_worker() for _ in range(drill.settings.workers)]
    drill.wait_until(
        lambda: drill.count("SELECT count(*) FROM faultline.ledger") > jobs // 3, "some commits"
    )
    workers[0].send(signal.SIGKILL)
    workers[0].kill()
    drill.inject("kill", workers[0].name)
    drill.started_worker()
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")
    _expect_rate_held(drill)


def _expect_rate_held(drill: DrillContext) -> None:
    starts = [
        float(at)
        for (at,) in drill.query(
            "SELECT extract(epoch FROM at) FROM drill.transitions"
            " WHERE before = 'queued' AND after = 'running' ORDER BY at"
        )
    ]
    for first in range(len(starts)):
        for last in range(first + BURST, len(starts)):
            allowed = BURST + (starts[last] - starts[first]) * JOBS_PER_SECOND
            number = last - first + 1
            if number > allowed + 1e-6:
                window = starts[last] - starts[first]
                drill.expect(False, f"{number} jobs started within {window:.3f} s")
                return
