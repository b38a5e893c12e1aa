"""A handler blocks its worker's event loop: a forgotten time.sleep.

Everything that shares the loop stands still. The worker must log where it is blocked, and release
the jobs that it claimed and did not start long before their leases expire. The control is a worker
that does not watch its loop: it keeps such jobs for longer than the other worker needs to run them.
SIGTERM must end both workers although their loops are blocked.
"""

from __future__ import annotations

import signal
import time
from uuid import UUID

from faultline_drills.context import DrillContext
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.scenario import scenario
from faultline_drills.workload.plan import BLOCK_VARIABLE
from faultline_drills.workload.tasks import pay

_BLOCK_SECONDS = 600  # longer than the drill
# No lease expires, so every requeued job was released.
_OPTIONS = ("--lease-seconds", "900", "--drain-seconds", "0.2")
_WATCHING = ("--stall-seconds", "1")
_NOT_WATCHING = ("--stall-seconds", "3600")


@scenario(shows=("blocks", "released", "commits"))
def blocked_event_loop(drill: DrillContext) -> None:
    jobs = drill.settings.jobs
    began = time.monotonic()
    beside, blocked = _block(drill, jobs, 0, *_WATCHING)
    drill.wait_until(lambda: bool(blocked.events_named("loop_blocked")), "the report of the block")
    [report] = blocked.events_named("loop_blocked")
    drill.expect(": time.sleep(" in report["frame"], f"the block is reported at {report['frame']}")
    helper = drill.worker(*_OPTIONS, name="helper")
    drill.wait_until(lambda: _ended(drill, beside) == len(beside), "the end of the jobs beside it")
    drill.expect(not blocked.events_named("loop_resumed"), "the loop was not blocked all the time")
    seconds = time.monotonic() - began
    drill.measured["jobs_run_elsewhere"] = len(beside)
    drill.stop_workers([helper])

    held, control = _block(drill, jobs, 1 + jobs, *_NOT_WATCHING)
    waits_until = time.monotonic() + 1.5 * seconds
    helper = drill.started_worker(*_OPTIONS, name="second helper")
    drill.wait_until(lambda: time.monotonic() > waits_until, "the time that the other worker took")
    drill.expect(
        _ended(drill, held) == 0, "a worker that does not watch its loop released its jobs"
    )

    for worker in (blocked, control):
        worker.send(signal.SIGTERM)
        code = worker.wait(drill.settings.timeout_seconds)
        drill.expect(code == 1, f"{worker.name} got SIGTERM and ended with {code}")
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")
    again = drill.count("SELECT count(*) FROM faultline.jobs WHERE attempts > 1")
    drill.expect(again == 0, f"{again} jobs used up an attempt")


def _block(
    drill: DrillContext, jobs: int, number: int, *options: str
) -> tuple[list[UUID], ObservedProcess]:
    """Start a worker that its first job blocks; the other jobs that it has claimed."""
    drill.submit(pay, number=number, plan={"1": "block@start"})
    beside = [drill.submit(pay, number=number + each) for each in range(1, jobs)]
    environment = {BLOCK_VARIABLE: str(_BLOCK_SECONDS)}
    size = ("--concurrency", str(jobs))
    worker = drill.worker(*_OPTIONS, *size, *options, environment=environment)
    drill.wait_until(lambda: bool(worker.events_named("execution_started")), "the block", by=worker)
    drill.inject("block", worker.name)
    return beside, worker


def _ended(drill: DrillContext, jobs: list[UUID]) -> int:
    return drill.count("SELECT count(*) FROM faultline.ledger WHERE job_id = ANY (%s)", [jobs])
