"""A job ends the process that runs it, at every attempt.

The attempt is counted at the claim, so such a job uses up its attempts although no worker survives
to report one. After two lost workers the job must run in a child process, where it harms no other
job. The jobs that ran beside it must be finished by other workers, and none of them may fail.
"""

from __future__ import annotations

import signal
import sys
from uuid import UUID

from faultline_drills.context import DrillContext
from faultline_drills.processes.process_group import CrashingWorkers
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import note, pay, pay_in_child, poison, poison_in_child


@scenario(shows=("segfaults", "takeovers", "dead_jobs", "commits"))
def poison_segfault(drill: DrillContext) -> None:
    """A job crashes in native code at every attempt, and its worker with it.

    Python cannot catch it: the process ends during everything else it was doing. The job must fail
    for good, and all other jobs must succeed.
    """
    _poison(drill, "segfault", exit_code=-signal.SIGSEGV)


@scenario(shows=("exits", "takeovers", "dead_jobs", "commits"))
def poison_exit(drill: DrillContext) -> None:
    """A job calls os._exit at every attempt.

    There is no exception and no signal: only the claim has counted the attempt. The job must fail
    for good, and all other jobs must succeed.
    """
    _poison(drill, "exit", exit_code=17)


def _missing_memory_limits() -> str | None:
    return None if sys.platform.startswith("linux") else "needs Linux, for limits on memory"


@scenario(
    shows=("ooms", "takeovers", "dead_jobs", "commits"), missing_requirement=_missing_memory_limits
)
def poison_oom(drill: DrillContext) -> None:
    """A job allocates memory until its worker is killed, at every attempt.

    The drill sets a memory limit, to protect the machine; the end is the same SIGKILL that the OOM
    killer sends. The job must fail for good, and all other jobs must succeed.
    """
    _poison(drill, "oom", exit_code=-signal.SIGKILL)


@scenario(shows=("endless_loops", "retries", "dead_jobs", "commits"))
def poison_infinite_loop(drill: DrillContext) -> None:
    """A job runs an endless loop at every attempt.

    No thread can be made to leave it. In a child process it must be killed at its timeout; the
    worker must live on, and all other jobs must succeed.
    """
    # The handler's timeout must end it, not its lease.
    worker = drill.worker("--lease-seconds", "600")
    first = drill.submit(pay_in_child, number=0)  # its child process is idle when the loop starts
    drill.wait_for_state(first, "succeeded")
    loop = drill.submit(poison_in_child, number=1, how="spin")
    others = _other_jobs(drill)
    drill.wait_for_state(loop, "failed")
    for _ in worker.events_named("endless_loop"):
        drill.inject("endless_loop", str(loop))
    _expect_failed(drill, loop, "attempts_spent")
    for job in others:
        drill.wait_for_state(job, "succeeded", "failed")
    _expect_success(drill, others)
    drill.expect(worker.is_alive, "the worker ended")


def _poison(drill: DrillContext, how: str, *, exit_code: int) -> None:
    killer = drill.submit(poison, number=0, how=how)
    others = _other_jobs(drill)
    workers = CrashingWorkers(drill, "--concurrency", "3", fault=how, exit_code=exit_code)
    workers.run_to_the_end()
    _expect_failed(drill, killer, "poison")
    _expect_success(drill, others)


def _other_jobs(drill: DrillContext) -> list[UUID]:
    """Other jobs of the same workers, with writes of their own and without."""
    tasks = (pay, note)
    return [drill.submit(tasks[number % 2], number=number) for number in range(drill.settings.jobs)]


def _expect_failed(drill: DrillContext, job: UUID, reason: str) -> None:
    (found,) = drill.query(
        "SELECT state, failed_reason, attempts, max_attempts FROM faultline.jobs WHERE id = %s",
        [job],
    )
    limit = found[3]
    drill.expect(
        found == ("failed", reason, limit, limit),
        f"job {job} should have failed as {reason}, and is {found}",
    )


def _expect_success(drill: DrillContext, others: list[UUID]) -> None:
    unsuccessful = drill.query(
        "SELECT id, state, failed_reason FROM faultline.jobs"
        " WHERE id = ANY (%s) AND state <> 'succeeded'",
        [others],
    )
    drill.expect(not unsuccessful, f"other jobs did not succeed: {unsuccessful}")
