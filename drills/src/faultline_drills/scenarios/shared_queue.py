"""Two services with different tasks share one queue, and their workers claim each other's jobs.

The same happens in a rolling deploy, when jobs of a new task meet workers of the old release. A worker
that does not know a job's task puts it back at once, without using an attempt, and does not get it again;
a worker that knows the task gets it at once. The jobs have two attempts each. The control is a client that
counts a job of an unknown task as failed: all of its jobs are dead before the right worker is there.
"""

from __future__ import annotations

from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline_drills import neighbour, workload
from faultline_drills.arena import Arena
from faultline_drills.scenario import scenario

_ATTEMPTS = "SELECT max(attempts), min(attempts) FROM faultline.jobs WHERE state = 'succeeded'"
_DEFERRED = (
    "SELECT FROM faultline.attempts_log WHERE outcome = 'released' AND error ~ 'not know task'"
)
_DEAD = "SELECT count(*) FROM faultline.jobs WHERE queue = %s AND failed_reason = 'attempts_spent'"
_CONTROL = "control"


@scenario(shows=("deferrals", "dead_jobs", "commits"))
def shared_queue(arena: Arena) -> None:
    _fail_unknown_tasks(arena)
    arena.started(name="service")
    for number in range(arena.settings.jobs):
        arena.submit(neighbour.pay, number=number)
    # The first service has met jobs that it cannot run before the second one is there at all.
    arena.wait_for_row(_DEFERRED, [], "a deferral")
    arena.started(name="neighbour", app=neighbour.APP)
    for number in range(arena.settings.jobs, 2 * arena.settings.jobs):
        arena.submit(neighbour.pay, number=number)
        arena.submit(workload.pay_or_die, number=number)
    arena.wait_until(lambda: arena.unfinished() == 0, "the end of all jobs")
    arena.expect(arena.query(_ATTEMPTS) == [(1, 1)], "every job took one attempt")
    arena.measured["deferrals"] = len(arena.query(_DEFERRED))


def _fail_unknown_tasks(arena: Arena) -> None:
    """The control: claims jobs of any task and fails each that it does not know."""
    jobs = arena.settings.jobs
    for number in range(-jobs, 0):
        arena.submit(neighbour.pay, number=number, queue=_CONTROL)
    claim = protocol.claim(_CONTROL, [_CONTROL], batch_size=jobs, lease_seconds=60)
    for _ in range(neighbour.pay.options.max_attempts):
        for taken in run(arena.conn, claim):
            unknown = protocol.fail(taken, error=f"no task {taken.task}", retry_seconds=0)
            run(arena.conn, unknown)
    dead = arena.count(_DEAD, [_CONTROL])
    arena.expect(dead == jobs, f"the control lost {dead} of {jobs} jobs, and not all of them")
