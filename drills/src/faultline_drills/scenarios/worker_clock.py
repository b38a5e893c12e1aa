"""The clock of every worker is a day off, and nothing is any different.

Leases begin and end by the database's clock, workers measure their own time with a steady one, and no
wall clock of theirs is ever compared with anything.
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from faultline_drills.arena import Arena
from faultline_drills.clock import lacking, shifted
from faultline_drills.lateness import stalled_worker, wake_to_the_end
from faultline_drills.scenario import scenario
from faultline_drills.witness import Witness
from faultline_drills.workload import pay

DAY_SECONDS = 86_400
# Of the drill's own leases: a heartbeat that a busy machine holds up for a second has lost nobody's job.
_LEASES = 2
_HELD_LEASES = 1.25  # more than one: it is held by heartbeats alone


@scenario(
    shows=("clock_shifts", "stops", "takeovers", "stale_rejections", "commits"),
    lacking=lacking,
)
def worker_clock_ahead(arena: Arena) -> None:
    """Workers live a day ahead of the database.

    By their clocks every lease ran out yesterday, and every job that waits for its retry is long due.
    They give up nothing that they hold, and take nothing before its time.
    """
    _play(arena, DAY_SECONDS)


@scenario(
    shows=("clock_shifts", "stops", "takeovers", "stale_rejections", "commits"),
    breaks_naive=True,
    lacking=lacking,
)
def worker_clock_behind(arena: Arena) -> None:
    """Workers live a day behind the database.

    By their clocks no lease runs out before tomorrow. A worker that was stopped for too long believes
    all the more in what it holds, and is refused all the same.
    """
    _play(arena, -DAY_SECONDS)


def _play(arena: Arena, seconds: int) -> None:
    folder = arena.stack.enter_context(tempfile.TemporaryDirectory(prefix="faultline-clock-"))
    environment = shifted(seconds, Path(folder))
    jobs, lease = arena.settings.jobs, _LEASES * arena.settings.lease_seconds
    for number in range(jobs):
        arena.submit(pay, number=number, plan={"1": "stop@start", "2": "raise@start"})
    late = stalled_worker(arena, environment=environment)
    slow = arena.submit(pay, number=jobs, work_seconds=_HELD_LEASES * lease)
    others = [
        arena.worker("--lease-seconds", str(lease), environment=environment)
        for _ in range(arena.settings.workers)
    ]
    arena.wait_until(
        lambda: arena.count("SELECT count(*) FROM faultline.ledger") >= jobs + 1, "the takeover"
    )
    wake_to_the_end(arena, late, attempts=jobs)
    for worker in (late, *others):
        if off := _seconds_off(worker):
            arena.inject("clock_shift", worker.name, seconds=off)
            arena.expect(abs(off - seconds) < DAY_SECONDS / 2, f"{worker.name} is off by {off} s")
    token = arena.count("SELECT fencing_token FROM faultline.jobs WHERE id = %s", [slow])
    arena.expect(token == 1, f"a job that is renewed all the time was claimed {token} times")


def _seconds_off(worker: Witness) -> int:
    """By what it says itself, to the hour; 0 when its clock is right."""
    if not worker.records:
        return 0
    said = datetime.fromisoformat(worker.records[0]["at"])
    return 3600 * round((said - datetime.now(UTC)) / timedelta(hours=1))
