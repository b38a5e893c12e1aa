"""The clock of every worker is a day off, and nothing is any different.

Leases begin and end by the database's clock, workers measure their own time with a steady one, and no
wall clock of theirs is ever compared with anything.
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from faultline_drills.clock import lacking, shifted
from faultline_drills.context import DrillContext
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.processes.stalled_worker import resume_until_done, stalled_worker
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay

DAY_SECONDS = 86_400
# Of the drill's own leases: a heartbeat that a busy machine holds up for a second has lost nobody's job.
_LEASES = 2
_HELD_LEASES = 1.25  # more than one: it is held by heartbeats alone


@scenario(
    shows=("clock_shifts", "stops", "takeovers", "stale_rejections", "commits"),
    lacking=lacking,
)
def worker_clock_ahead(drill: DrillContext) -> None:
    """Workers live a day ahead of the database.

    By their clocks every lease ran out yesterday, and every job that waits for its retry is long due.
    They give up nothing that they hold, and take nothing before its time.
    """
    _play(drill, DAY_SECONDS)


@scenario(
    shows=("clock_shifts", "stops", "takeovers", "stale_rejections", "commits"),
    breaks_naive=True,
    lacking=lacking,
)
def worker_clock_behind(drill: DrillContext) -> None:
    """Workers live a day behind the database.

    By their clocks no lease runs out before tomorrow. A worker that was stopped for too long believes
    all the more in what it holds, and is refused all the same.
    """
    _play(drill, -DAY_SECONDS)


def _play(drill: DrillContext, seconds: int) -> None:
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
    drill.expect(token == 1, f"a job that is renewed all the time was claimed {token} times")


def _seconds_off(worker: ObservedProcess) -> int:
    """By what it says itself, to the hour; 0 when its clock is right."""
    if not worker.events:
        return 0
    said = datetime.fromisoformat(worker.events[0]["at"])
    return 3600 * round((said - datetime.now(UTC)) / timedelta(hours=1))
