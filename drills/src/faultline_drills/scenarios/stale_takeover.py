"""A worker is stopped during its jobs, and resumes after others finished them.

Every thread stands still, heartbeats included, as in a long GC pause or a frozen virtual machine.
Its leases expire, other workers run its jobs, and it resumes without knowing that time has passed.
Self-fencing is off: PostgreSQL alone must refuse its commits.
"""

from __future__ import annotations

from faultline_drills.context import DrillContext
from faultline_drills.processes.stalled_worker import stall_until_taken_over
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay


@scenario(shows=("stops", "takeovers", "stale_rejections", "commits"), breaks_naive=True)
def stale_takeover(drill: DrillContext) -> None:
    stall_until_taken_over(drill, pay)
