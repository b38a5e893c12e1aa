"""Two applications share a queue, and claim jobs of unknown tasks.

The same happens in a rolling deploy, when an old worker claims a job of a new task. A worker that
does not know a job's task must release it at once without using an attempt, and must not claim it
again; a worker that knows the task must get it. The control is a client that fails such jobs: all
of them are dead before the right worker starts.
"""

from __future__ import annotations

from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline_drills.context import DrillContext
from faultline_drills.scenario import scenario
from faultline_drills.workload import second_app, tasks

_ATTEMPTS = "SELECT max(attempts), min(attempts) FROM faultline.jobs WHERE state = 'succeeded'"
_DEFERRED = (
    "SELECT FROM faultline.attempts_log WHERE outcome = 'released' AND error ~ 'not know task'"
)
_DEAD = "SELECT count(*) FROM faultline.jobs WHERE queue = %s AND failed_reason = 'attempts_spent'"
_CONTROL = "control"


@scenario(shows=("deferrals", "dead_jobs", "commits"))
def shared_queue(drill: DrillContext) -> None:
    _fail_unknown_tasks(drill)
    drill.started_worker(name="service")
    for number in range(drill.settings.jobs):
        drill.submit(second_app.pay, number=number)
    # The first application claims jobs of unknown tasks before the second one starts.
    drill.wait_for_row(_DEFERRED, [], "a deferral")
    drill.started_worker(name="second_app", app=second_app.APP)
    for number in range(drill.settings.jobs, 2 * drill.settings.jobs):
        drill.submit(second_app.pay, number=number)
        drill.submit(tasks.pay_or_die, number=number)
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")
    drill.expect(drill.query(_ATTEMPTS) == [(1, 1)], "a job took more than one attempt")
    drill.measured["deferrals"] = len(drill.query(_DEFERRED))


def _fail_unknown_tasks(drill: DrillContext) -> None:
    """The control: claim jobs of any task, and fail those of unknown tasks."""
    jobs = drill.settings.jobs
    for number in range(-jobs, 0):
        drill.submit(second_app.pay, number=number, queue=_CONTROL)
    claim = protocol.claim(_CONTROL, [_CONTROL], batch_size=jobs, lease_seconds=60)
    for _ in range(second_app.pay.settings.max_attempts):
        for taken in run(drill.conn, claim):
            unknown = protocol.fail(taken, error=f"no task {taken.task}", retry_seconds=0)
            run(drill.conn, unknown)
    dead = drill.count(_DEAD, [_CONTROL])
    drill.expect(dead == jobs, f"the control lost only {dead} of {jobs} jobs")
