"""Somebody takes every connection that the server has, and the workers lose theirs at the same time.

A deployment that went wrong, or a pool without a limit. The workers find no way in (53300), wait, and
try again, each at its own pace. Their leases run out meanwhile. When there is room again everything
goes on, and nothing has happened twice.
"""

from __future__ import annotations

from contextlib import ExitStack

import psycopg

from faultline_drills.context import DrillContext
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.proxy import Proxy, proxy_to
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay

_CONNECTIONS = 40
_HANGING = 6  # so many jobs that one worker has slots for them all
_OURS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND (application_name = 'hoard' OR pid = pg_backend_pid())
"""


@scenario(
    shows=("exhaustions", "outages", "leases_lost", "commits"),
    server_settings={"max_connections": str(_CONNECTIONS), "fsync": "off"},
)
def connections_exhausted(drill: DrillContext) -> None:
    hanging = set()
    for number in range(drill.settings.jobs):
        plan = {"1": "hang@half"} if number < _HANGING else None
        job_id = drill.submit(pay, number=number, parts=2, plan=plan)
        if plan:
            hanging.add(str(job_id))
    proxy = drill.stack.enter_context(proxy_to(drill.url))
    workers = [drill.started_worker(url=proxy.url) for _ in range(drill.settings.workers)]
    # One that was begun only afterwards would keep its lease, and hang for ever.
    drill.wait_until(
        lambda: hanging <= _jobs_of(workers, "execution_started"), "jobs that are under way"
    )
    with ExitStack() as hoard:
        proxy.refuse_connections()  # or some worker would be back before the last place is taken
        drill.wait_until(
            lambda: _has_all(drill, proxy, hoard), "a server without a place for anybody"
        )
        proxy.clear_faults()
        drill.inject("exhaustion", "postgres", max_connections=_CONNECTIONS)
        drill.wait_until(
            lambda: all(_was_turned_away(worker) for worker in workers), "workers without a way in"
        )
        drill.wait_until(
            lambda: hanging <= _jobs_of(workers, "lease_lost", "worker_exit"),
            "the end of their leases",
        )
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")


def _jobs_of(workers: list[ObservedProcess], *events: str) -> set[str]:
    """The jobs of which one of them has said so."""
    return {
        said["job_id"]
        for worker in workers
        for event in events
        for said in worker.events_named(event)
    }


def _was_turned_away(worker: ObservedProcess) -> bool:
    return bool(worker.events_named("database_unavailable"))


def _has_all(drill: DrillContext, proxy: Proxy, hoard: ExitStack) -> bool:
    """Whether every place is ours. That no session of a worker's is left would not be enough: the place of
    one that is just leaving is free a moment later, for whoever comes first."""
    proxy.reset_all()
    _take_all(drill, hoard)
    return drill.count(_OURS) == _CONNECTIONS


def _take_all(drill: DrillContext, hoard: ExitStack) -> None:
    """Until there is none left; whoever else tries is turned away."""
    for _ in range(_CONNECTIONS):
        try:
            hoard.enter_context(psycopg.connect(drill.url, application_name="hoard"))
        except psycopg.OperationalError:
            return
