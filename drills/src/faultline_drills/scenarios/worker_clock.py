"""Every worker's wall clock is a day off.

Leases start and end by the database's clock, workers measure time with a monotonic clock, and their
wall clocks must not matter.
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from faultline_drills.clock import missing_requirement, shifted
from faultline_drills.context import DrillContext
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.processes.stalled_worker import resume_until_done, stalled_worker
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay

DAY_SECONDS = 86_400
# Times the drill's lease, since heartbeats may be late on a busy machine.
_LEASES = 2
_HELD_LEASES = 1.25  # more than one, so that heartbeats must renew it


@scenario(
    shows=("clock_shifts", "stops", "takeovers", "stale_rejections", "commits"),
    missing_requirement=missing_requirement,
)
def worker_clock_ahead(drill: DrillContext) -> None:
    """The workers' wall clocks are a day ahead of the database's.

    By these clocks every lease has expired, and every retry is due. Workers must keep what they
    hold, and claim nothing too early.
    """
    _run(drill, DAY_SECONDS)


@scenario(
    shows=("clock_shifts", "stops", "takeovers", "stale_rejections", "commits"),
    breaks_naive=True,
    missing_requirement=missing_requirement,
)
def worker_clock_behind(drill: DrillContext) -> None:
    """The workers' wall clocks are a day behind the database's.

    By these clocks no lease expires before tomorrow. A worker that was stopped for too long must
    still be refused.
    """
    _run(drill, -DAY_SECONDS)


def _run(drill: DrillContext, seconds: int) -> None:
    folder = drill.stack.enter_context(tempfile.TemporaryDirectory(prefix="faultline-clock-"))
    environment = shifted(seconds, Path(folder))
    jobs, lease = drill.settings.jobs, _LEASES * drill.settings.lease_seconds
    for number in range(jobs):
        drill.submit(pay, number=number, plan={"1": "stop@start", "2": "raise@start"})
    late = stalled_worker(drill, environment=environment)
    slow = drill.submit(pay, number=jobs, work_seconds=_HELD_LEASES * lease)
    others = [
        drill.worker("--lease-seconds", str(lease), environment=environment)
        for _ in range(drill.settings.workers)
    ]
    drill.wait_until(
        lambda: drill.count("SELECT count(*) FROM faultline.ledger") >= jobs + 1, "the takeover"
    )
    resume_until_done(drill, late, attempts=jobs)
    for worker in (late, *others):
        if off := _seconds_off(worker):
            drill.inject("clock_shift", worker.name, seconds=off)
            drill.expect(abs(off - seconds) < DAY_SECONDS / 2, f"{worker.name} is off by {off} s")
    token = drill.count("SELECT fencing_token FROM faultline.jobs WHERE id = %s", [slow])
    drill.expect(token == 1, f"a job with a renewed lease was claimed {token} times")


def _seconds_off(worker: ObservedProcess) -> int:
    """By the timestamps of its own events, to the hour; 0 if its clock is right."""
    if not worker.events:
        return 0
    logged = datetime.fromisoformat(worker.events[0]["at"])
    return 3600 * round((logged - datetime.now(UTC)) / timedelta(hours=1))
