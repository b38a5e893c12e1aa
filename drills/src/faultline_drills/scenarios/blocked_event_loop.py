"""A handler blocks its worker's event loop: jobs beside it run elsewhere, and SIGTERM ends the worker.

A forgotten `time.sleep`, a slow library, a large computation: everything that shares the loop stands still.
The worker logs where it is blocked and releases what it had claimed and not started, long before the leases
run out. The control is a worker that does not watch its loop: it keeps these jobs for longer than it took
the other worker to run them. Then both are told to stop, and end although their loops are blocked.
"""

from __future__ import annotations

import signal
import time
from uuid import UUID

from faultline_drills.arena import Arena
from faultline_drills.scenario import scenario
from faultline_drills.witness import Witness
from faultline_drills.workload import BLOCK_VARIABLE, pay

_BLOCK_SECONDS = 600  # longer than the drill
# No lease runs out: what comes back was released.
_OPTIONS = ("--lease-seconds", "900", "--drain-seconds", "0.2")
_WATCHING = ("--stall-seconds", "1")
_NOT_WATCHING = ("--stall-seconds", "3600")


@scenario(shows=("blocks", "released", "commits"))
def blocked_event_loop(arena: Arena) -> None:
    jobs = arena.settings.jobs
    began = time.monotonic()
    beside, blocked = _block(arena, jobs, 0, *_WATCHING)
    arena.wait_until(lambda: bool(blocked.heard("loop_blocked")), "the report of the block")
    [said] = blocked.heard("loop_blocked")
    arena.expect(": time.sleep(" in said["frame"], f"the block is reported at {said['frame']}")
    helper = arena.worker(*_OPTIONS, name="helper")
    arena.wait_until(lambda: _ended(arena, beside) == len(beside), "the end of the jobs beside it")
    arena.expect(not blocked.heard("loop_resumed"), "the loop was not blocked all the time")
    seconds = time.monotonic() - began
    arena.measured["jobs_run_elsewhere"] = len(beside)
    arena.dismiss([helper])

    held, control = _block(arena, jobs, 1 + jobs, *_NOT_WATCHING)
    patient_until = time.monotonic() + 1.5 * seconds
    helper = arena.started(*_OPTIONS, name="second helper")
    arena.wait_until(lambda: time.monotonic() > patient_until, "as long as the others took")
    arena.expect(_ended(arena, held) == 0, "without the watch the jobs did not wait")

    for worker in (blocked, control):
        worker.send(signal.SIGTERM)
        code = worker.wait(arena.settings.timeout_seconds)
        arena.expect(code == 1, f"{worker.name} was told to stop and ended with {code}")
    arena.wait_until(lambda: arena.unfinished() == 0, "the end of all jobs")
    again = arena.count("SELECT count(*) FROM faultline.jobs WHERE attempts > 1")
    arena.expect(again == 0, f"{again} jobs used up an attempt")


def _block(arena: Arena, jobs: int, number: int, *options: str) -> tuple[list[UUID], Witness]:
    """Start a worker whose first job blocks it; the jobs that it has claimed beside that one."""
    arena.submit(pay, number=number, plan={"1": "block@start"})
    beside = [arena.submit(pay, number=number + each) for each in range(1, jobs)]
    environment = {BLOCK_VARIABLE: str(_BLOCK_SECONDS)}
    size = ("--concurrency", str(jobs))
    worker = arena.worker(*_OPTIONS, *size, *options, environment=environment)
    arena.wait_until(lambda: bool(worker.heard("execution_started")), "the block", by=worker)
    arena.inject("block", worker.name)
    return beside, worker


def _ended(arena: Arena, jobs: list[UUID]) -> int:
    return arena.count("SELECT count(*) FROM faultline.ledger WHERE job_id = ANY (%s)", [jobs])
