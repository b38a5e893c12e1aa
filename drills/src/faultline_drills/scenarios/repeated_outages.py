"""The database goes away again and again, each time for longer than a lease.

Handlers of every kind (`def`, `async def`, in a process of their own) have begun, and ask for a connection
when there is none to be had. Their leases run out, and the worker ends them while they wait. None of these
ends may cost the worker a connection: after the last outage every pool has all that it opened, and jobs of
every kind run.
"""

from __future__ import annotations

from typing import Any

from faultline.task import Task
from faultline_drills.arena import Arena
from faultline_drills.proxy import proxy_to
from faultline_drills.scenario import scenario
from faultline_drills.witness import Witness
from faultline_drills.workload import (
    count_connections,
    count_connections_apart,
    count_connections_async,
    pay_in_outage,
    pay_in_outage_apart,
    pay_in_outage_async,
)

_OUTAGES = 2
_PAYMENTS: tuple[Task[Any, Any], ...] = (pay_in_outage, pay_in_outage_async, pay_in_outage_apart)
_JOBS = (2, 2, 1)  # of each kind; a process takes long to start
_COUNTS: tuple[Task[Any, Any], ...] = (
    count_connections,
    count_connections_async,
    count_connections_apart,
)
_TRIES = 20


@scenario(shows=("partitions", "leases_lost", "commits"))
def repeated_outages(arena: Arena) -> None:
    proxy = arena.stack.enter_context(proxy_to(arena.url))
    worker = arena.started("--concurrency", str(sum(_JOBS)), url=proxy.url)
    for outage in range(_OUTAGES):
        jobs = [
            str(arena.submit(task, number=number))
            for task, count in zip(_PAYMENTS, _JOBS, strict=True)
            for number in range(count * outage, count * (outage + 1))
        ]
        _wait_for(arena, worker, "execution_started", jobs)
        # A lease that was renewed has begun anew: its handler waits for the cut.
        _wait_for(arena, worker, "lease_renewed", jobs)
        proxy.refuse_connections()
        proxy.reset_all()
        arena.inject("partition", worker.name, how="connections refused")
        _wait_for(arena, worker, "lease_lost", jobs)
        _wait_for(arena, worker, "worker_exit", jobs)
        proxy.flow()
        arena.wait_until(lambda: arena.unfinished() == 0, "the end of the jobs", by=worker)
    for task in _COUNTS:
        stats = _settled(arena, task)
        whole = stats["pool_available"] == stats["pool_size"] and not stats["requests_waiting"]
        arena.expect(whole, f"{task.name}: connections were lost, {stats}")
    last = [arena.submit(task, number=2 * _OUTAGES, waits=False) for task in _PAYMENTS]
    arena.expect(
        all(arena.wait_for_state(job, "succeeded", "failed") == "succeeded" for job in last),
        "a job of some kind failed after the outages",
    )


def _wait_for(arena: Arena, worker: Witness, event: str, jobs: list[str]) -> None:
    arena.wait_until(
        lambda: set(jobs) <= {said["job_id"] for said in worker.heard(event)},
        f"{event} of every job",
        by=worker,
    )


def _settled(arena: Arena, task: Task[Any, Any]) -> dict[str, int]:
    """The pool's statistics: as soon as it has replaced what the outage broke, or as they are in the end."""
    stats: dict[str, int] = {}
    for _ in range(_TRIES):
        job = arena.submit(task, parts=0)
        arena.wait_for_state(job, "succeeded")
        (stats,) = arena.query("SELECT result FROM faultline.ledger WHERE job_id = %s", [job])[0]
        stats = {"requests_waiting": 0, **stats}
        if stats["pool_available"] == stats["pool_size"]:
            break
    return stats
