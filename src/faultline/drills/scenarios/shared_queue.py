"""Two services with different tasks share one queue, and their workers claim each other's jobs.

The same happens in a rolling deploy, when jobs of a new task meet workers of the old release. A worker
that does not know a job's task puts it back at once, without using an attempt, and does not get it again;
a worker that knows the task gets it at once. The jobs have two attempts each: if claiming a job of an
unknown task counted as a failure, most of them would be dead before the right worker sees them.
"""

from __future__ import annotations

from faultline.drills import neighbour, workload
from faultline.drills.arena import Arena
from faultline.drills.scenario import scenario

_ATTEMPTS = "SELECT max(attempts), min(attempts) FROM faultline.jobs WHERE state = 'succeeded'"
_DEFERRED = (
    "SELECT FROM faultline.attempts_log WHERE outcome = 'released' AND error ~ 'not know task'"
)


@scenario(shows=("deferrals", "commits"))
def shared_queue(arena: Arena) -> None:
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
