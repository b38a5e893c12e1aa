"""Somebody takes every connection that the server has, and the workers lose theirs at the same time.

A deployment that went wrong, or a pool without a limit. The workers find no way in (53300), wait, and
try again, each at its own pace. Their leases run out meanwhile. When there is room again everything
goes on, and nothing has happened twice.
"""

from __future__ import annotations

from contextlib import ExitStack

import psycopg

from faultline.drills.arena import Arena
from faultline.drills.proxy import Proxy, proxy_to
from faultline.drills.scenario import scenario
from faultline.drills.witness import Witness
from faultline.drills.workload import pay

_CONNECTIONS = 40
_WORKER_SESSIONS = """
    SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
      AND starts_with(application_name, 'faultline ')
"""


@scenario(
    shows=("exhaustions", "outages", "leases_lost", "commits"),
    server_settings={"max_connections": str(_CONNECTIONS), "fsync": "off"},
)
def connections_exhausted(arena: Arena) -> None:
    for number in range(arena.settings.jobs):
        arena.submit(pay, number=number, parts=2, plan={"1": "hang@half"})
    proxy = arena.stack.enter_context(proxy_to(arena.url))
    workers = [arena.started(url=proxy.url) for _ in range(arena.settings.workers)]
    arena.wait_until(
        lambda: any(worker.heard("execution_started") for worker in workers), "a job under way"
    )
    with ExitStack() as hoard:
        proxy.refuse_connections()  # or some worker would be back before the last place is taken
        arena.wait_until(
            lambda: _has_all(arena, proxy, hoard), "the end of all sessions of the workers"
        )
        proxy.flow()
        arena.inject("exhaustion", "postgres", max_connections=_CONNECTIONS)
        arena.wait_until(
            lambda: all(_was_turned_away(worker) for worker in workers), "workers without a way in"
        )
        arena.wait_until(
            lambda: any(worker.heard("lease_lost") for worker in workers), "the end of a lease"
        )
    arena.wait_until(lambda: arena.unfinished() == 0, "the end of all jobs")


def _was_turned_away(worker: Witness) -> bool:
    return bool(worker.heard("database_unavailable"))


def _has_all(arena: Arena, proxy: Proxy, hoard: ExitStack) -> bool:
    proxy.reset_all()
    _take_all(arena, hoard)
    return not arena.query(_WORKER_SESSIONS)


def _take_all(arena: Arena, hoard: ExitStack) -> None:
    """Until there is none left; whoever else tries is turned away."""
    for _ in range(_CONNECTIONS):
        try:
            hoard.enter_context(psycopg.connect(arena.url, application_name="hoard"))
        except psycopg.OperationalError:
            return
