"""Another client takes every connection of the server.

The workers lose their connections and get no new ones (53300), and their leases expire. They must
retry with backoff, go on when connections are free again, and nothing may take effect twice.
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
_HANGING = 6  # jobs; one worker has slots for all of them
_OURS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND (application_name = 'exhaustion' OR pid = pg_backend_pid())
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
    # A job that starts after the outage would keep its lease, and hang for ever.
    drill.wait_until(
        lambda: hanging <= _jobs_of(workers, "execution_started"), "the start of the hanging jobs"
    )
    with ExitStack() as sessions:
        proxy.refuse_connections()  # so that no worker takes the last slot
        drill.wait_until(lambda: _has_all(drill, proxy, sessions), "a server without a free slot")
        proxy.clear_faults()
        drill.inject("exhaustion", "postgres", max_connections=_CONNECTIONS)
        drill.wait_until(
            lambda: all(_was_refused(worker) for worker in workers),
            "a refused connection of each worker",
        )
        drill.wait_until(
            lambda: hanging <= _jobs_of(workers, "lease_lost", "worker_exit"),
            "the loss of their leases",
        )
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")


def _jobs_of(workers: list[ObservedProcess], *events: str) -> set[str]:
    """The jobs for which one of the workers logged one of these events."""
    return {
        found["job_id"]
        for worker in workers
        for event in events
        for found in worker.events_named(event)
    }


def _was_refused(worker: ObservedProcess) -> bool:
    return bool(worker.events_named("database_unavailable"))


def _has_all(drill: DrillContext, proxy: Proxy, sessions: ExitStack) -> bool:
    """Whether the drill holds every connection slot.

    It is not enough that no worker's session is left: a closing session frees its slot a moment
    later, for whichever client connects first.
    """
    proxy.reset_all()
    _take_all(drill, sessions)
    return drill.count(_OURS) == _CONNECTIONS


def _take_all(drill: DrillContext, sessions: ExitStack) -> None:
    """Open sessions until the server refuses one."""
    for _ in range(_CONNECTIONS):
        try:
            sessions.enter_context(psycopg.connect(drill.url, application_name="exhaustion"))
        except psycopg.OperationalError:
            return
