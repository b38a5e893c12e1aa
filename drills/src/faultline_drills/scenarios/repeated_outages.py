"""The database is unreachable repeatedly, each time longer than a lease.

Handlers of every kind (`def`, `async def`, child process) wait for a connection when their leases
expire, and the worker ends them. None of this may cost the worker a connection: after the last
outage every pool must have all its connections, and jobs of every kind must run.
"""

from __future__ import annotations

from typing import Any

from faultline.task import Task
from faultline_drills.context import DrillContext
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.proxy import proxy_to
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import (
    count_connections,
    count_connections_async,
    count_connections_in_child,
    pay_in_outage,
    pay_in_outage_async,
    pay_in_outage_in_child,
)

_OUTAGES = 2
_PAYMENTS: tuple[Task[Any, Any], ...] = (pay_in_outage, pay_in_outage_async, pay_in_outage_in_child)
_JOBS = (2, 2, 1)  # per task; a child process takes long to start
_COUNTS: tuple[Task[Any, Any], ...] = (
    count_connections,
    count_connections_async,
    count_connections_in_child,
)
_TRIES = 20


@scenario(shows=("partitions", "leases_lost", "commits"))
def repeated_outages(drill: DrillContext) -> None:
    proxy = drill.stack.enter_context(proxy_to(drill.url))
    worker = drill.started_worker("--concurrency", str(sum(_JOBS)), url=proxy.url)
    for outage in range(_OUTAGES):
        jobs = [
            str(drill.submit(task, number=number))
            for task, count in zip(_PAYMENTS, _JOBS, strict=True)
            for number in range(count * outage, count * (outage + 1))
        ]
        _wait_for(drill, worker, "execution_started", jobs)
        # With a renewed lease, the handler still waits when the outage starts.
        _wait_for(drill, worker, "lease_renewed", jobs)
        proxy.refuse_connections()
        proxy.reset_all()
        drill.inject("partition", worker.name, how="connections refused")
        _wait_for(drill, worker, "lease_lost", jobs)
        _wait_for(drill, worker, "worker_exit", jobs)
        proxy.clear_faults()
        drill.wait_until(lambda: drill.unfinished() == 0, "the end of the jobs", by=worker)
    for task in _COUNTS:
        stats = _pool_statistics(drill, task)
        whole = stats["pool_available"] == stats["pool_size"] and not stats["requests_waiting"]
        drill.expect(whole, f"{task.name}: connections were lost, {stats}")
    last = [drill.submit(task, number=2 * _OUTAGES, waits=False) for task in _PAYMENTS]
    drill.expect(
        all(drill.wait_for_state(job, "succeeded", "failed") == "succeeded" for job in last),
        "a job failed after the outages",
    )


def _wait_for(drill: DrillContext, worker: ObservedProcess, event: str, jobs: list[str]) -> None:
    drill.wait_until(
        lambda: set(jobs) <= {found["job_id"] for found in worker.events_named(event)},
        f"{event} of every job",
        by=worker,
    )


def _pool_statistics(drill: DrillContext, task: Task[Any, Any]) -> dict[str, int]:
    """The pool's statistics once it is whole again, or the last ones read."""
    stats: dict[str, int] = {}
    for _ in range(_TRIES):
        job = drill.submit(task, parts=0)
        drill.wait_for_state(job, "succeeded")
        (stats,) = drill.query("SELECT result FROM faultline.ledger WHERE job_id = %s", [job])[0]
        stats = {"requests_waiting": 0, **stats}
        if stats["pool_available"] == stats["pool_size"]:
            break
    return stats
