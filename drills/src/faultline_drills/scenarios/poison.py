"""A job ends the process that runs it, at every attempt.

The attempt is counted when the job is claimed, not when it ends, so such a job runs out of attempts
although nobody is ever left to report one. After two dead workers it is a suspect, and runs in a
process of its own, where it can do no more harm. The jobs that were there when the workers died are
finished by others, and none of them is buried with it.
"""

from __future__ import annotations

import signal
import sys
from uuid import UUID

from faultline_drills.context import DrillContext
from faultline_drills.processes.process_group import CrashingWorkers
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import note, pay, pay_apart, poison, poison_apart


@scenario(shows=("segfaults", "takeovers", "dead_jobs", "commits"))
def poison_segfault(drill: DrillContext) -> None:
    """A job crashes in native code, and takes its worker with it, at every attempt.

    Python cannot catch it: the process is gone in the middle of everything else it was doing.
    """
    _poison(drill, "segfault", exit_code=-signal.SIGSEGV)


@scenario(shows=("exits", "takeovers", "dead_jobs", "commits"))
def poison_exit(drill: DrillContext) -> None:
    """A job leaves by the back door, at every attempt: `os._exit`, without cleaning up.

    No exception, no signal, an ordinary end of the process: only the claim has counted the attempt.
    """
    _poison(drill, "exit", exit_code=17)


def _lacking_memory_limits() -> str | None:
    return None if sys.platform.startswith("linux") else "needs Linux, for limits on memory"


@scenario(shows=("ooms", "takeovers", "dead_jobs", "commits"), lacking=_lacking_memory_limits)
def poison_oom(drill: DrillContext) -> None:
    """A job asks for ever more memory until its worker is killed for it, at every attempt.

    The limit is one of the drill's own, so that the machine stays out of it; the end is the same
    SIGKILL that a kernel short of memory sends.
    """
    _poison(drill, "oom", exit_code=-signal.SIGKILL)


@scenario(shows=("endless_loops", "retries", "dead_jobs", "commits"))
def poison_infinite_loop(drill: DrillContext) -> None:
    """A job never ends, and does not listen: an endless loop, at every attempt.

    No thread can be made to leave it. In a process of its own it is killed when its time is up, the
    worker lives on, and so do the other jobs.
    """
    # The handler's time is to run out, and not its lease.
    worker = drill.worker("--lease-seconds", "600")
    first = drill.submit(
        pay_apart, number=0
    )  # its process is there, and idle, when the loop begins
    drill.wait_for_state(first, "succeeded")
    loop = drill.submit(poison_apart, number=1, how="spin")
    others = _bystanders(drill)
    drill.wait_for_state(loop, "failed")
    for _ in worker.events_named("endless_loop"):
        drill.inject("endless_loop", str(loop))
    _expect_buried(drill, loop, "attempts_spent")
    for job in others:
        drill.wait_for_state(job, "succeeded", "failed")
    _expect_alive(drill, others)
    drill.expect(worker.is_alive, "the worker lives on")


def _poison(drill: DrillContext, how: str, *, exit_code: int) -> None:
    killer = drill.submit(poison, number=0, how=how)
    others = _bystanders(drill)
    crew = CrashingWorkers(drill, "--concurrency", "3", fault=how, exit_code=exit_code)
    crew.run_to_the_end()
    _expect_buried(drill, killer, "poison")
    _expect_alive(drill, others)


def _bystanders(drill: DrillContext) -> list[UUID]:
    """Other jobs of the same workers, with writes of their own and without."""
    tasks = (pay, note)
    return [drill.submit(tasks[number % 2], number=number) for number in range(drill.settings.jobs)]


def _expect_buried(drill: DrillContext, job: UUID, reason: str) -> None:
    (found,) = drill.query(
        "SELECT state, failed_reason, attempts, max_attempts FROM faultline.jobs WHERE id = %s",
        [job],
    )
    limit = found[3]
    drill.expect(
        found == ("failed", reason, limit, limit), f"{job} is buried as {reason}, not {found}"
    )


def _expect_alive(drill: DrillContext, others: list[UUID]) -> None:
    unhappy = drill.query(
        "SELECT id, state, failed_reason FROM faultline.jobs"
        " WHERE id = ANY (%s) AND state <> 'succeeded'",
        [others],
    )
    drill.expect(not unhappy, f"the other jobs succeed, not {unhappy}")
