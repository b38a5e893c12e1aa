"""Every message takes 150 ms each way, which the lease allows for.

A job's transaction takes five round trips, a new connection six, and heartbeats are as slow as
everything else. Recovery must not mistake a slow worker for a lost one: no job may be taken over.
"""

from __future__ import annotations

from faultline_drills.context import DrillContext
from faultline_drills.proxy import proxy_to
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import note, pay

_ONE_WAY_SECONDS = 0.15
_LEASE_SECONDS = 5.0


@scenario(shows=("slowdowns", "commits"))
def slow_network(drill: DrillContext) -> None:
    proxy = drill.stack.enter_context(proxy_to(drill.url))
    for _ in range(drill.settings.workers):
        drill.started_worker("--lease-seconds", str(_LEASE_SECONDS), url=proxy.url)
    proxy.delay(_ONE_WAY_SECONDS, jitter=_ONE_WAY_SECONDS / 3, seed=drill.settings.seed)
    drill.inject("slowdown", "workers", one_way_seconds=_ONE_WAY_SECONDS)
    for number in range(drill.settings.jobs):
        drill.submit(note if number % 3 == 0 else pay, number=number)
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")
    proxy.clear_faults()
    again = drill.count("SELECT count(*) FROM faultline.jobs WHERE fencing_token > 1")
    drill.expect(again == 0, f"{again} jobs were taken over from slow workers")
