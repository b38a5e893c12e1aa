"""Workers die one after another under load, and the books are in order when it is over."""

from __future__ import annotations

from tests.processes import apps
from tests.processes.fleet import Fleet
from tests.processes.stage import Stage

JOBS = 100
KILLS = 5
OPTIONS = ("--lease-seconds", "5", "--concurrency", "4", "--no-reconciler")


def test_every_job_takes_effect_once_while_workers_are_killed_one_after_another(
    fleet: Fleet, stage: Stage
) -> None:
    apps.pay_in_the_database.enqueue_many([{"seconds": 0.1}] * JOBS, conn=stage.conn)
    reconcilers = [fleet.reconciler(f"reconciler {n}") for n in range(2)]
    workers = [fleet.worker(*OPTIONS, name=f"worker {n}") for n in range(3)]

    running = "FROM faultline.jobs AS j JOIN faultline.workers AS w ON w.id = j.lease_owner"
    running += " WHERE j.state = 'running' AND w.pid = %s"
    for kill in range(KILLS):
        victim = workers.pop(0)
        stage.wait_until(lambda: stage.count(running, [victim.pid]) > 0, "it does nothing")  # noqa: B023
        victim.kill()
        if kill == KILLS // 2:
            leader = max(reconcilers, key=lambda each: len(each.heard("reconciler_leading")))
            leader.kill()
        workers.append(fleet.worker(*OPTIONS, name=f"successor {kill}"))

    stage.wait_for_all(JOBS)
    stage.assert_paid_once_each(JOBS)
    lost = "FROM faultline.attempts_log WHERE outcome = 'worker_lost'"
    assert stage.count(lost) > 0
