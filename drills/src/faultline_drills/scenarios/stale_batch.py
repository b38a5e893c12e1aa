"""A stopped worker resumes and commits its finished jobs in a batch.

These jobs have no writes of their own, and other workers have finished them. The batch is
answered per job, and the worker must report what it was answered.
"""

from __future__ import annotations

from faultline_drills.context import DrillContext
from faultline_drills.processes.stalled_worker import stall_until_taken_over
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import note


@scenario(shows=("stops", "takeovers", "stale_rejections", "commits"), breaks_naive=True)
def stale_batch(drill: DrillContext) -> None:
    stall_until_taken_over(drill, note)
